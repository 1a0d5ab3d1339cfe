"""The accuracy gates: the shipped file on the golden rows, through the predictor that the application uses."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from edgepack_runtime import stats
from edgepack_runtime.gate_limits import Check, Limits, sampled
from edgepack_runtime.golden import GoldenRow
from edgepack_runtime.predictor import Predictor

_ROWS_BETWEEN_LINES = 500


class Counts(NamedTuple):
    """What came out on `n` rows. `lost`: only the float model is right; `won`: only the shipped file is."""

    n: int
    right: int
    lost: int
    won: int


def count(predictor: Predictor, rows: Sequence[GoldenRow], progress: Callable[[str], None]) -> Counts:
    """Predict every row by itself, as an application would, and compare."""
    right = lost = won = 0
    for number, row in enumerate(rows, start=1):
        ours = predictor.predict(row.text).label == row.label
        theirs = row.float_label == row.label
        right += ours
        lost += theirs and not ours
        won += ours and not theirs
        if number % _ROWS_BETWEEN_LINES == 0 or number == len(rows):
            progress(f"accuracy: {number} of {len(rows)} rows, {right} right")
    return Counts(len(rows), right, lost, won)


def summary(counts: Counts, confidence: float) -> Dict[str, Any]:
    """The receipt's `accuracy`: a fraction with its Wilson interval."""
    interval = stats.wilson(counts.right, counts.n, confidence)
    return {
        **{name: round(value, 6) for name, value in interval._asdict().items()},
        "n": counts.n,
        "confidence": confidence,
    }


def checks(counts: Counts, limits: Limits) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    found = []
    if limits.accuracy_min is not None:
        found.append(_minimum(counts, limits.accuracy_min, limits.confidence))
    if limits.max_drop_points is not None:
        found.append(_drop(counts, limits.max_drop_points, limits.confidence))
    return found


def _minimum(counts: Counts, limit: float, confidence: float) -> Check:
    interval = stats.wilson(counts.right, counts.n, confidence)
    verdict = stats.verdict_at_least(interval, limit)
    detail = f"{counts.right} of {counts.n} rows right"
    if verdict == stats.INCONCLUSIVE:
        detail += "; " + would_decide(stats.n_for_proportion(interval.value, limit, confidence), "rows")
    return sampled(
        "accuracy.min",
        verdict,
        interval,
        limit=limit,
        unit="fraction",
        n=counts.n,
        confidence=confidence,
        detail=detail,
    )


def _drop(counts: Counts, limit_points: float, confidence: float) -> Check:
    """Paired: both models saw the same rows, so only those count on which one of them alone is right."""
    interval = stats.paired_drop(counts.lost, counts.won, counts.n, confidence)
    verdict = stats.verdict_at_most(interval, limit_points / 100)
    detail = f"{counts.lost} rows lost against the float model, {counts.won} won"
    if verdict == stats.INCONCLUSIVE:
        n = stats.n_for_drop(counts.lost, counts.won, counts.n, limit_points / 100, confidence)
        detail += "; " + would_decide(n, "rows")
    points = stats.Interval(*(100 * number for number in interval))
    return sampled(
        "accuracy.max_drop_points",
        verdict,
        points,
        limit=limit_points,
        unit="points",
        n=counts.n,
        confidence=confidence,
        detail=detail,
    )


def would_decide(n: Optional[int], of_what: str) -> str:
    """How much more it takes, in words."""
    if n is None:
        return f"no number of {of_what} would decide: the figure is at the limit"
    return f"about {n} {of_what} would decide"
