"""Results of gates on several targets, their common exit code, and validation of external receipts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.errors import EdgepackError, StageFailedError
from edgepack.gating.remote import Copied
from edgepack.report.gates import NOT_MEASURED, Gates, NotGated, TargetGates
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.gate.latency import asked_of
from edgepack_runtime.schema import figures
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, Limits, declared
from edgepack_runtime.schema.receipt import VERDICTS, BundleFacts, GateReceipt
from edgepack_runtime.stats import intervals

FORMAT: Final = 1
# Faults of a bundle come before errors of a target, and these before inconclusive results.
WORST_FIRST: Final = (
    ExitCode.BUNDLE_INVALID,
    ExitCode.GATE_FAILED,
    ExitCode.UNEXPECTED,
    ExitCode.USAGE,
    ExitCode.STAGE_FAILED,
    ExitCode.ENVIRONMENT_UNFIT,
    ExitCode.TARGET_UNREACHABLE,
    ExitCode.GATE_INCONCLUSIVE,
    ExitCode.OK,
)
_MOST_LEVELS: Final = 20  # lists and objects in each other; a receipt has 6


@dataclass(frozen=True)
class GateResult:
    """Result of one bundle on one target: a receipt, or an error.

    `unkept` is the reason if the receipt could not be stored. `seconds` include copying and waiting; the receipt has
    the time of the gate alone.
    """

    target: str
    bundle: str | None
    manifest: Manifest | None
    exit_code: int
    receipt: Mapping[str, Any] | None = None
    error: EdgepackError | None = None
    device: Mapping[str, Any] = field(default_factory=dict)
    copied: Copied | None = None
    kept: Path | None = None
    unkept: EdgepackError | None = None
    seconds: float | None = None

    @property
    def gated(self) -> GateReceipt | None:
        """The receipt, read."""
        return None if self.receipt is None else GateReceipt.parse(self.receipt)

    @property
    def verdict(self) -> str:
        return VERDICTS.get(self.exit_code, NOT_MEASURED) if self.receipt else NOT_MEASURED


def worst(codes: Sequence[int]) -> ExitCode:
    """The worst of several exit codes, in the order of `WORST_FIRST`; 1 for an unknown code."""
    known = [code if code in WORST_FIRST else ExitCode.UNEXPECTED for code in codes]
    return next((code for code in WORST_FIRST if code in known), ExitCode.UNEXPECTED)


def gates_of(results: Sequence[GateResult]) -> Gates:
    """The results as their readers see them."""
    return Gates("edgepack gate", _verdict(_worst_of(results)), tuple(map(_target_gates, results)))


def _worst_of(results: Sequence[GateResult]) -> ExitCode:
    return worst([result.exit_code for result in results])


def _verdict(code: ExitCode) -> str:
    return VERDICTS.get(code, NOT_MEASURED)


def _target_gates(result: GateResult) -> TargetGates:
    manifest, error, gated = result.manifest, result.error, result.gated
    bundle = None if gated is None else gated.bundle
    if bundle is None and manifest is not None:
        bundle = BundleFacts(manifest.name, manifest.version, manifest.target.profile)
    return TargetGates(
        result.target,
        result.verdict,
        result.bundle,
        bundle,
        gated,
        None if error is None else NotGated(error.what, error.why, error.fix),
        seconds=result.seconds,
    )


def document(results: Sequence[GateResult]) -> dict[str, Any]:
    """All results in JSON types: common verdict and exit code, then each result with its receipt or error."""
    code = _worst_of(results)
    return {
        "gates": FORMAT,
        "verdict": _verdict(code),
        "exit_code": int(code),
        "results": [
            {
                "target": result.target,
                "bundle": {
                    "file_name": result.bundle,
                    "name": result.manifest and result.manifest.name,
                    "version": result.manifest and result.manifest.version,
                    "target": result.manifest and result.manifest.target.profile,
                },
                "verdict": result.verdict,
                "exit_code": result.exit_code,
                "receipt": result.receipt,
                "error": None if result.error is None else _document_of(result.error),
                "seconds": result.seconds,
                "device": dict(result.device) or None,
                "copied": result.copied and asdict(result.copied),
                "kept": None if result.kept is None else str(result.kept),
                "not_kept": None if result.unkept is None else _document_of(result.unkept),
            }
            for result in results
        ],
    }


def _document_of(error: EdgepackError) -> dict[str, str]:
    return {"what": error.what, "why": error.why, "fix": error.fix}


def readable(
    receipt: Mapping[str, Any], *, manifest: Manifest | None = None, without_rows: bool = False
) -> Mapping[str, Any]:
    """Validate the parts of `receipt` that are printed; numbers in its conditions that are not finite become None.

    Args:
        manifest: of the bundle, whose gates the receipt must have; None if it is not known.
        without_rows: gates on rows that are not there were waived; the device cannot waive them by itself.

    Raises:
        StageFailedError: a part is missing or invalid, or the verdict is not that of the checks.
    """
    try:
        read = GateReceipt.parse(receipt)
        _require_flat(receipt)
        found = {**receipt, "conditions": _finite(receipt.get("conditions", {}))}
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise StageFailedError("gate: the receipt cannot be read", why=str(error)) from error
    undecided = [intervals.INCONCLUSIVE for one in read.unmeasured if not (one.waived and without_rows)]
    if read.bundle is None:
        raise StageFailedError("gate: the receipt cannot be read", why="it names no bundle")
    if not read.checks and not read.unmeasured:
        raise StageFailedError("gate: the receipt cannot be read", why="it has no gate, not even one without a figure")
    if manifest is not None and (lacking := sorted(_limited(manifest.gates) - _named(read))):
        raise StageFailedError("gate: the receipt cannot be read", why=f"it lacks {', '.join(lacking)}")
    if (verdict := intervals.overall([*(check.verdict for check in read.checks), *undecided])) != read.verdict:
        why = f"its verdict is {read.verdict}, and that of its gates {verdict}"
        raise StageFailedError("gate: the receipt contradicts itself", why=why)
    for check in read.checks:
        if check.unit not in figures.UNITS:
            raise StageFailedError(
                f"gate: the receipt cannot be read: {check.gate} is in {check.unit}",
                why="this edgepack does not know that unit; the release on the device is newer",
                fix="use the edgepack that built it",
            )
    return found


def _limited(gates: Mapping[str, Any]) -> set[str]:
    """The gates that a manifest limits."""

    def limit(gate: str) -> Any:
        value: Any = gates
        for key in gate.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    limits = Limits.parse(gates)
    found = {gate for gate in declared() if isinstance(limit(gate), (int, float)) and gate != ABOVE_MAJORITY}
    found |= {*limits.accuracy.checks(), *(asked.gate for asked in asked_of(limits.latency))}
    # Without its rows a bundle without another gate has no check at all, and its receipt says so.
    return found | ({ABOVE_MAJORITY} if limits.accuracy.above_majority and (found or limits.golden.carry) else set())


def _named(receipt: GateReceipt) -> set[str]:
    return {check.gate for check in receipt.checks} | {one.gate for one in receipt.unmeasured}


def _require_flat(value: Any, levels: int = _MOST_LEVELS) -> None:
    """Refuse what a larger document could not hold, with the receipts of other devices in it."""
    if levels == 0:
        raise ValueError(f"it has more than {_MOST_LEVELS} levels")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _require_flat(inner, levels - 1)


def _finite(value: Any) -> Any:
    """`value` with None for numbers that JSON cannot represent, such as NaN of a failed sensor."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
