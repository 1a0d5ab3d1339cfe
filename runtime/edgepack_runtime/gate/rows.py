"""The labelled rows of an accuracy gate: those that the release carries, or those that stayed where it was built.

Rows that stay at home leave their digest in the manifest. Whoever has the file can still gate with it, on any device,
and nothing else passes for it. Without it the accuracy is not measured, and the receipt says so. Whether the rest may
pass alone is for the caller to say: an install has to, a release manager has not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, List, Optional

from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import UsageError
from edgepack_runtime.gate.limits import Limits
from edgepack_runtime.stats.checks import PER_CLASS

WHY_NOT = "the labelled rows stayed where the bundle was built; whoever has them gates with --rows FILE"


def read(release: Path, config: ModelConfig, limits: Limits, given: Optional[Path]) -> Optional[List[GoldenRow]]:
    """The rows to measure the accuracy on; None where they stayed at home and are not `given`.

    Raises:
        UsageError: `given` cannot be read, is another file than that of the build, or is not needed.
        BundleInvalidError: as `golden.read_rows`.
    """
    if given is None:
        return golden.read_rows(release, config) if limits.rows_sha256 is None else None
    raw = read_file(given)
    require(raw, given.name, limits, "this bundle")
    return golden.parse_rows(raw, given.name, config)


def read_file(given: Path) -> bytes:
    """The bytes of a file that holds rows.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return given.read_bytes()
    except OSError as error:
        raise UsageError(f"{given} cannot be read", why=error.strerror or str(error)) from error


def require(raw: bytes, file_name: str, limits: Limits, bundle: str) -> None:
    """That `raw`, of a file of that name, is what a build wrote of the rows of `bundle`, whose limits these are.

    Raises:
        UsageError: it is something else, or the bundle carries its rows.
    """
    if limits.rows_sha256 is None:
        raise UsageError("--rows is for bundles whose rows stayed at home", why=f"{bundle} carries them")
    found = hashlib.sha256(raw).hexdigest()
    if found != limits.rows_sha256:
        raise UsageError(
            f"{file_name} does not hold the rows of {bundle}",
            why=f"its sha256 is {found}, and the manifest says {limits.rows_sha256}",
            fix="give the file that the build wrote beside this bundle",
        )


def unmeasured(limits: Limits, *, waived: bool) -> List[Dict[str, Any]]:
    """The receipt's `unmeasured` where there are no rows: each gate on accuracy, and why it has no verdict.

    `waived`: the rest is to be judged alone.
    """
    asked = {
        "accuracy.min": limits.accuracy_min,
        "accuracy.max_drop_points": limits.max_drop_points,
        "accuracy.max_regression_points": limits.max_regression_points,
    }
    gates = [gate for gate, limit in asked.items() if limit is not None]
    gates += [PER_CLASS + figure for figure in limits.per_class]
    return [{"gate": gate, "why": WHY_NOT, "waived": waived} for gate in gates]
