"""Say of a gate that was missed: which figure, by how much, and which stage lost it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgepack.artifacts import LedgerRow
from edgepack.report import limit, quantity, span
from edgepack.wording import metric_name
from edgepack_runtime.accuracy_limits import PER_CLASS

_ON: Final = "on "  # before the name of a target, in the ledger


def explain(receipt: Mapping[str, Any], ledger: Sequence[LedgerRow]) -> list[str]:
    """One line for each check that did not pass; `ledger` is that of its target alone (`Build.ledger_of`)."""
    metric = str(receipt["accuracy"]["metric"])
    return [_line(check, ledger, metric) for check in receipt["checks"] if check["verdict"] != "pass"]


def losses(receipt: Mapping[str, Any], ledger: Sequence[LedgerRow]) -> list[dict[str, str]]:
    """Of each check that failed by a figure, by how much and what lost it, for where the figure itself is told."""
    metric = str(receipt["accuracy"]["metric"])
    return [
        {"gate": str(check["gate"]), "why": _loss(check, ledger, metric)}
        for check in receipt["checks"]
        if check["verdict"] == "fail" and check["value"] is not None
    ]


def _line(check: Mapping[str, Any], ledger: Sequence[LedgerRow], metric: str) -> str:
    gate, unit, value = check["gate"], check["unit"], check["value"]
    if value is None:
        return f"{gate}: {check['verdict']}: {check['detail']}"
    head = f"{gate}: {quantity(value, unit)} where {limit(check)} is due"
    if check["verdict"] == "inconclusive":
        return f"{head}: inconclusive, {span(check['low'], check['high'], unit)}; {check['detail']}"
    return f"{head}: {_loss(check, ledger, metric)}"


def _loss(check: Mapping[str, Any], ledger: Sequence[LedgerRow], metric: str) -> str:
    """Of a check that failed: by how much, and what lost it."""
    by, unit = abs(check["value"] - check["limit"]), check["unit"]
    distance = quantity(100 * by, "points") if unit == "fraction" else quantity(by, unit)
    return f"missed by {distance}; {_lost_by(check, ledger, metric)}"


def _lost_by(check: Mapping[str, Any], ledger: Sequence[LedgerRow], metric: str) -> str:
    """The ledger row at which the figure was lost."""
    gate = check["gate"]
    if gate == "accuracy.min":
        in_it = [row for row in ledger if row.score.metric == metric]
        if len(in_it) < len(ledger):
            return f"the ledger is in {metric_name(ledger[0].score.metric)}, and does not tell where"
        return _lost_accuracy(float(check["limit"]), ledger)
    if gate == "accuracy.max_drop_points":
        return "lost by stage quantize: the shipped file against the float ONNX"
    if gate == "accuracy.max_regression_points":
        return "the earlier release is no stage of this build: compare their teachers and data"
    if gate.startswith(PER_CLASS):
        return "the ledger is of all classes together, and does not tell where"
    if gate in ("latency.p50_ms", "latency.p95_ms"):
        return _lost_latency(float(check["limit"]), gate.removeprefix("latency."), ledger)
    if gate.startswith("latency") or gate == "energy.mj_per_text":
        return _lost_on_device(check, ledger)
    if gate == "size.model_mib":
        return "lost by stage student: its shape and vocabulary decide the size of the file"
    return "lost by stage bundle: the libraries that travel are the largest part of it"


def _lost_on_device(check: Mapping[str, Any], ledger: Sequence[LedgerRow]) -> str:
    """What the build measured nothing of: the reason is in the receipt, and what the build knows beside it."""
    gate = str(check["gate"])
    if gate == "latency.p99_ms" or gate.startswith("latency.max_tokens_"):
        of = "p99" if gate == "latency.p99_ms" else "texts of that length"
        return f"the ledger has no {of}; of all texts it has p95 {_timed(ledger, 'p95_ms')}"
    reason = str(check["detail"]).rpartition("; ")[2]
    if gate.startswith("latency.open_loop."):
        return f"texts wait for each other, {reason}; one takes p50 {_timed(ledger, 'p50_ms')}"
    return f"lost on the device, not by a stage: {reason}"


def _timed(ledger: Sequence[LedgerRow], percentile: str) -> str:
    """What each stage that was timed has."""
    told = (f"{stage} {quantity(value, 'ms')}" for stage, value in _of_stages(ledger, percentile))
    return ", ".join(told) or "of no stage"


def _of_stages(ledger: Sequence[LedgerRow], percentile: str) -> list[tuple[str, float]]:
    """The times on the build machine: not that of the target itself, which is the figure that missed."""
    timed = [(row.stage, getattr(row, percentile)) for row in ledger if not row.stage.startswith(_ON)]
    return [(stage, value) for stage, value in timed if value is not None]


def _lost_latency(most_ms: float, percentile: str, ledger: Sequence[LedgerRow]) -> str:
    """The last timed row that keeps to the limit lost it on the way to the next; none: the model is too slow."""
    told = _timed(ledger, percentile)
    kept = [stage for stage, value in _of_stages(ledger, percentile) if value <= most_ms]
    if not kept:
        return f"lost by stage student: its shape is too slow in the form that ships ({told})"
    return f"lost by stage gate: {kept[-1]} kept to it on the build machine ({told})"


def _lost_accuracy(least: float, ledger: Sequence[LedgerRow]) -> str:
    """The stage after which it is below the limit for good: what fell below before that was made good again.

    What is at the limit has reached it, as for the gate.
    """
    reached = [place for place, row in enumerate(ledger) if row.score.value >= least]
    if not reached:
        best = max(ledger, key=lambda row: row.score.value)
        return f"never reached: even stage {best.stage} has {quantity(best.score.value, 'fraction')}"
    before, *after = ledger[reached[-1] :]
    if not after:
        return f"lost by no stage: {before.stage} reaches the limit, and the golden rows are below it"
    lost = 100 * (before.score.value - after[0].score.value)
    told, stage = f"{lost:.2f} points below stage {before.stage}", after[0].stage
    target = stage.removeprefix(_ON)
    return f"lost by stage {stage}: {told}" if target == stage else f"lost on {target}: {told}"
