"""Attribution of a missed gate: the stage that lost it, and the distance from the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgepack.artifacts import LedgerRow
from edgepack.messages import Message, figure, joined, message
from edgepack.report import gates
from edgepack.report.i18n import ON
from edgepack.report.i18n import metric as metric_in_words
from edgepack.report.i18n import stage as stage_name
from edgepack.report.model import Distance, Loss
from edgepack_runtime.bundle.model_config import CASCADE, ENSEMBLE
from edgepack_runtime.schema.figures import NOTHING, quantity
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, is_by_length, is_min_of, is_per_class
from edgepack_runtime.schema.receipt import GateCheck, GateReceipt
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import SCORE, metric_of

_LINEAR: Final = "linear"
_STUDENT: Final = "student"
_COMBINED: Final = (ENSEMBLE, CASCADE)  # rows of what ships in place of the encoder alone
_BY_DEVICE: Final = ("lost.on_device",)  # the build measured nothing of these: the detail has the reason


def explain(receipt: GateReceipt, ledger: Sequence[LedgerRow]) -> list[str]:
    """One line for each check that did not pass. `ledger` is that of its target (`Build.ledger_of`)."""
    return [_line(check, ledger, _metric(receipt)) for check in receipt.checks if check.verdict != intervals.PASS]


def losses(receipt: GateReceipt, ledger: Sequence[LedgerRow]) -> tuple[Loss, ...]:
    """Each failed check with its distance from the limit and the stage that lost it."""
    metric = _metric(receipt)
    return tuple(
        Loss(
            gate=check.gate,
            missed_by=_missed_by(check),
            why=_why(check, ledger, metric),
        )
        for check in receipt.checks
        if check.verdict == intervals.FAIL and check.value is not None
    )


def _metric(receipt: GateReceipt) -> str:
    return "" if receipt.accuracy is None else receipt.accuracy.metric


def _line(check: GateCheck, ledger: Sequence[LedgerRow], metric: str) -> str:
    row = gates.row(check)
    if not row.is_measured:
        word = message(f"verdict.{row.verdict}")
        return message("say.check_line", gate=row.gate, verdict=word, detail=row.detail)
    head = {"gate": row.gate, "value": figure(row.value), "limit": figure(row.limit)}
    if row.verdict == intervals.INCONCLUSIVE:
        return message("say.inconclusive_head", **head, interval=figure(row.interval), why=row.detail)
    detail = row.detail if _lost_by(check, ledger, metric).id in _BY_DEVICE else ""
    return message("say.lost_head", **head, why=joined(_why(check, ledger, metric), detail))


def _missed_by(check: GateCheck) -> Distance:
    """The distance from the limit with its unit; in points for a fraction."""
    distance, unit = abs((check.value or 0.0) - check.limit), check.unit
    if unit == "fraction":
        distance, unit = 100 * distance, "points"
    return Distance(round(distance, 6), unit)


def _why(check: GateCheck, ledger: Sequence[LedgerRow], metric: str) -> str:
    distance = _missed_by(check)
    missed_by = message("lost.missed_by", distance=figure(quantity(distance.value, distance.unit)))
    return joined(missed_by, _lost_by(check, ledger, metric))


def _lost_by(check: GateCheck, rows: Sequence[LedgerRow], metric: str) -> Message:
    gate, is_imported = check.gate, _is_imported(rows, metric)
    is_linear = all(row.stage == _LINEAR or row.stage.startswith(ON) for row in rows)
    baseline, ledger = (rows[:1], rows[1:]) if rows[0].stage == _LINEAR and not is_linear else ([], rows)
    if gate in ("accuracy.min", "accuracy.max"):
        if any(row.score.metric != metric for row in ledger):
            return message("lost.other_metric", metric=metric_in_words(ledger[0].score.metric))
        return _lost_accuracy(check.limit, ledger, baseline)
    if gate == "accuracy.max_drop_points":
        combined = [row.stage for row in ledger if row.stage in _COMBINED]
        return message("lost.combined", stage=stage_name(combined[0])) if combined else message("lost.quantized")
    if gate == "accuracy.max_regression_points":
        return message("lost.imported_release" if is_imported else "lost.earlier_release")
    if gate == ABOVE_MAJORITY:
        return message("lost.majority")
    if is_per_class(gate) or is_min_of(gate):
        return message("lost.classes")
    if is_linear and gate.startswith("latency."):
        return message("lost.on_device")
    if gate in ("latency.p50_ms", "latency.p95_ms"):
        return _lost_latency(check.limit, gate.removeprefix("latency."), ledger, is_imported=is_imported)
    if gate == "latency.p99_ms":
        return message("lost.no_p99", times=_times(ledger, "p95_ms"))
    if is_by_length(gate):
        return message("lost.no_lengths", times=_times(ledger, "p95_ms"))
    if gate == "memory.peak_rss_mib" and metric == SCORE:
        return message("lost.imported_memory")
    if gate == "size.model_mib" and is_linear:
        return message("lost.linear_size")
    if gate == "size.model_mib":
        return message("lost.imported_model_size" if is_imported else "lost.model_size")
    if gate in ("size.bundle_mib", "memory.peak_rss_mib", "cold_start.ms"):
        return message("lost.bundle")
    return message("lost.on_device")


def _is_imported(ledger: Sequence[LedgerRow], metric: str) -> bool:
    """Whether edgepack did not train the model: every ledger of a training has the row of a student."""
    return metric == SCORE or all(row.stage != _STUDENT for row in ledger)


def _times(ledger: Sequence[LedgerRow], percentile: str) -> str:
    """The latency after each stage that was timed."""
    timed = _of_stages(ledger, percentile)
    times = [message("lost.time", stage=stage_name(stage), time=quantity(ms, "ms")) for stage, ms in timed]
    return joined(*times, by="list.comma") or NOTHING


def _of_stages(ledger: Sequence[LedgerRow], percentile: str) -> list[tuple[str, float]]:
    """The latencies on the build machine, without that of the target, which missed."""
    timed = [(row.stage, getattr(row, percentile)) for row in ledger if not row.stage.startswith(ON)]
    return [(stage, value) for stage, value in timed if value is not None]


def _lost_latency(most_ms: float, percentile: str, ledger: Sequence[LedgerRow], *, is_imported: bool) -> Message:
    """The stage after the last row within the limit; without such a row, the model is too slow."""
    times = _times(ledger, percentile)
    kept = [stage for stage, value in _of_stages(ledger, percentile) if value <= most_ms]
    if not kept:
        return message("lost.imported_too_slow" if is_imported else "lost.too_slow", times=times)
    return message("lost.by_target", stage=stage_name(kept[-1]), times=times)


def _lost_accuracy(limit: float, ledger: Sequence[LedgerRow], baseline: Sequence[LedgerRow]) -> Message:
    """The stage after which the score stays beyond the limit. A score at the limit has reached it."""
    kind = metric_of(ledger[0].score.metric)
    sign = 1 if kind.more_is_better else -1
    reached = [place for place, row in enumerate(ledger) if sign * (row.score.value - limit) >= 0]
    if not reached:
        best = max((*ledger, *baseline), key=lambda row: sign * row.score.value)
        score = quantity(best.score.value, best.score.unit)
        if sign * (best.score.value - limit) >= 0:
            return message("lost.by_encoder", stage=stage_name(best.stage), score=score)
        return message("lost.not_reached", stage=stage_name(best.stage), score=score)
    before, *after = ledger[reached[-1] :]
    if not after:
        return message("lost.by_no_stage", stage=stage_name(before.stage))
    lost, stage = before.score.gain_over(after[0].score), after[0].stage
    if not kind.more_is_better:
        return message("lost.error", by=quantity(lost, kind.unit), before=stage_name(before.stage))
    points = {"points": f"{100 * lost:.2f}", "before": stage_name(before.stage)}
    if stage.startswith(ON):
        return message("lost.on_target", target=stage.removeprefix(ON), **points)
    return message("lost.at_stage", stage=stage_name(stage), **points)
