"""Labelled rows of the accuracy gates: carried by the release, or given as a file with `--rows`.

If the rows are kept out of the bundle, the manifest holds their SHA-256, and only that file is accepted. Without it
accuracy is not measured, and the receipt lists the gates as unmeasured. The caller decides whether the other gates
may pass alone: an install accepts this, a release gate does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import List, Optional

from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, Limits
from edgepack_runtime.schema.receipt import Unmeasured

WHY_NOT = message("gate.no_rows_here")


def read(release: Path, config: ModelConfig, limits: Limits, given: Optional[Path]) -> Optional[List[GoldenRow]]:
    """The rows to measure accuracy on; None if they are kept out of the bundle and not `given`.

    Raises:
        UsageError: `given` cannot be read, is not the file of the build, or is not needed.
        BundleInvalidError: as `golden.read_rows`.
    """
    if given is None:
        return golden.read_rows(release, config) if limits.golden.sha256 is None else None
    raw = read_file(given)
    require(raw, given.name, limits, "this bundle")
    return golden.parse_rows(raw, given.name, config)


def read_file(given: Path) -> bytes:
    """Read a file of rows.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return given.read_bytes()
    except OSError as error:
        raise UsageError(f"{given} cannot be read", why=error.strerror or str(error)) from error


def require(raw: bytes, file_name: str, limits: Limits, bundle: str) -> None:
    """Check that `raw`, read from `file_name`, holds the rows that the build of `bundle` kept out of it.

    Raises:
        UsageError: the SHA-256 differs from `limits`, or the bundle carries its rows.
    """
    if limits.golden.sha256 is None:
        raise UsageError(
            "--rows is for bundles without their rows",
            why=f"{bundle} carries them",
            fix="omit it; rows of your own: predict --input TABLE --label-column NAME --output FILE",
        )
    found = hashlib.sha256(raw).hexdigest()
    if found != limits.golden.sha256:
        raise UsageError(
            f"{file_name} does not hold the rows of {bundle}",
            why=f"its sha256 is {found}; the manifest has {limits.golden.sha256}",
            fix="give the file that the build wrote beside this bundle",
        )


def unmeasured(limits: Limits, *, others: bool, waived: bool) -> List[Unmeasured]:
    """The receipt's `unmeasured` without rows: each accuracy gate with the reason; none for a recipe without gates.

    Args:
        others: whether there are other gates.
        waived: the other gates alone decide the verdict.
    """
    asked = limits.accuracy
    gates = asked.checks()
    gates += [ABOVE_MAJORITY] if asked.above_majority and (gates or others) else []
    return [Unmeasured(gate, WHY_NOT, waived) for gate in gates]
