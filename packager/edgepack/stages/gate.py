"""Gate a bundle on its target: the bundle's own `gate` verb, in a process of its own, decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from edgepack.artifacts import BundleArtifact, GateArtifact, LedgerRow, Score
from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.progress import Progress
from edgepack.results import NotRunHere
from edgepack.targets import distant, here, local
from edgepack.targets.distant import Connect, Gated, Parcel, Place
from edgepack.targets.interpreters import Interpreter
from edgepack.targets.local import Answer
from edgepack.targets.rows import Rows
from edgepack_runtime.errors import ExitCode, reported
from edgepack_runtime.gate_limits import NO_GATES
from edgepack_runtime.verify import verify_file

VERSION = 1
RECEIPT_FILE = "receipt.json"
NO_ROWS = Rows()
_DECIDED: dict[int, Literal["pass", "fail", "inconclusive"]] = {
    ExitCode.OK: "pass",
    ExitCode.GATE_FAILED: "fail",
    ExitCode.GATE_INCONCLUSIVE: "inconclusive",
}
_ERRORS: dict[int, type[EdgepackError]] = {
    kind.exit_code: kind for kind in (UsageError, EnvironmentUnfitError, BundleInvalidError)
}


def run(
    bundle: BundleArtifact, model_mib: float, interpreter: Interpreter, out: Path, progress: Progress
) -> GateArtifact:
    """Gate `bundle` on this machine with `interpreter` and keep the receipt, whatever the verdict."""
    progress.line(f"with CPython {interpreter.version}")
    exit_code, receipt = gate_file(bundle.path, progress, interpreter, Rows(bundle.rows_path), without_gates=True)
    (out / RECEIPT_FILE).write_text(json.dumps(receipt, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    accuracy, latency = receipt["accuracy"], receipt["latency"]
    row = LedgerRow(
        f"on {bundle.target}",
        Score(**{key: accuracy[key] for key in ("value", "low", "high", "n", "confidence", "metric")}),
        model_mib=model_mib,
        p50_ms=latency and latency["p50_ms"],
        p95_ms=latency and latency["p95_ms"],
        note=f"gate: {receipt['verdict']}" if receipt["checks"] else NO_GATES,
    )
    return GateArtifact(out, bundle.target, exit_code, _DECIDED[exit_code], row, receipt)


def gate_here(
    bundle: Path, progress: Progress, pythons: Sequence[Path] = (), rows: Rows = NO_ROWS
) -> tuple[int, dict[str, Any]]:
    """As `gate_file`, with the interpreter that the bundle's target has; `pythons` are looked at first.

    Raises:
        TargetUnreachableError: this machine cannot run bundles of that target.
        As `gate_file`.
    """
    manifest = verify_file(bundle)[0]
    target = manifest.target
    found = here.runner(target, target.provider, libc_min=target.libc_min, pythons=pythons)
    if isinstance(found, NotRunHere):
        raise TargetUnreachableError(
            f"{bundle.name} cannot be gated on this machine",
            why=found.why,
            fix=f"on a device of target {target.profile}: python3 {bundle.name} gate",
        )
    return _gate(bundle, progress, found, rows)


def gate_file(
    bundle: Path, progress: Progress, interpreter: Interpreter, rows: Rows = NO_ROWS, *, without_gates: bool = False
) -> tuple[int, dict[str, Any]]:
    """Run `bundle`'s own gate here; returns its exit code (0, 6 or 7) and its receipt.

    `without_gates`: a bundle of a recipe that sets none passes, in place of being inconclusive.

    Raises:
        EnvironmentUnfitError, BundleInvalidError, UsageError: as the bundle itself reported them.
        StageFailedError: when it ended without a verdict in any other way.
    """
    verify_file(bundle)  # nothing of a file that is not a whole bundle is run
    return _gate(bundle, progress, interpreter, rows, without_gates=without_gates)


def _gate(
    bundle: Path, progress: Progress, interpreter: Interpreter, rows: Rows, *, without_gates: bool = False
) -> tuple[int, dict[str, Any]]:
    options = ["--json", *rows.arguments(), *(["--without-gates"] if without_gates else [])]
    return judged(bundle.name, local.run_verb(bundle, "gate", options, progress, interpreter.path))


def gate_there(
    parcel: Parcel, connect: Connect, place: Place, rows: Rows, progress: Progress
) -> tuple[int, dict[str, Any], Gated]:
    """As `gate_file`, on a device over SSH; also what was copied.

    Raises:
        TargetUnreachableError: it cannot be reached, or is of another kind than the bundle's target.
        As `gate_file`.
    """
    gated = distant.gate(parcel, connect, place, rows, progress)
    return (*judged(parcel.archive.path.name, gated.answer, parcel.release_id), gated)


def gate_installed(
    parcel: Parcel | None, connect: Connect, place: Place, rows: Rows, progress: Progress
) -> tuple[int, dict[str, Any], Gated]:
    """As `gate_there`, of the release that serves on the device, which has to be that of `parcel` if one is given."""
    name, release = (None, None) if parcel is None else (parcel.manifest.name, parcel.release_id)
    gated = distant.gate_installed(name, release, connect, place, rows, progress)
    return (*judged("the installed release", gated.answer, release), gated)


def judged(name: str, answer: Answer, release_id: str | None = None) -> tuple[int, dict[str, Any]]:
    """The exit code (0, 6 or 7) and the receipt in the answer of a verb `gate`.

    Args:
        release_id: what the receipt has to be about, where that is known.

    Raises:
        EnvironmentUnfitError, BundleInvalidError, UsageError: as the bundle itself reported them.
        StageFailedError: when it ended without a verdict in any other way.
    """
    if answer.exit_code not in _DECIDED:
        kind, error = _ERRORS.get(answer.exit_code, StageFailedError), reported(answer.stdout)
        if error is not None:
            raise kind(f"gate: {name}: {error.what}", why=error.why, fix=error.fix)
        raise kind(f"gate: {name} ended with exit code {answer.exit_code} before a verdict", why=answer.stderr_tail)
    try:
        receipt = json.loads(answer.stdout)
        told = receipt["verdict"], receipt["bundle"]["release_id"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StageFailedError(f"gate: {name} printed no receipt", why=answer.stderr_tail) from error
    if told != (_DECIDED[answer.exit_code], release_id or told[1]):
        raise StageFailedError(
            f"gate: {name} printed a receipt that is not its own",
            why=f"it says {told[0]} of {told[1]}; exit code {answer.exit_code}, {release_id or 'any'} was gated",
        )
    return answer.exit_code, receipt
