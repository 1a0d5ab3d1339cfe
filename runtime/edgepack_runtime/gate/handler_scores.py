"""Accuracy gates of models with a handler: the mean of the handler's scores on the golden examples."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from edgepack_runtime.bundle.handler_examples import GoldenExample, canonical, read_examples
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate.accuracy import AccuracyResult, repeats
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.gates import AccuracyLimits, Limits, limit_named
from edgepack_runtime.schema.receipt import GateCheck, Score
from edgepack_runtime.stats import intervals, mean_scores
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import SCORE
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import counted

_RIGHT = 1.0


def measure(predictor: Predictor, release: Path, limits: Limits, progress: Log) -> AccuracyResult:
    """Answer every example and check the limits on the scores.

    Raises:
        BundleInvalidError: the release is incomplete, or a limit does not apply to a handler.
        StageFailedError: the handler fails.
    """
    if limits.accuracy.metric is not None or _is_about_texts(limits):
        raise BundleInvalidError(
            "this runtime cannot measure the gates of the manifest",
            why="a model with a handler has scores, and no labels",
            fix="build the bundle again",
        )
    examples = read_examples(release, predictor.config)
    found: List[float] = []
    pace = Pace()
    for number, example in enumerate(examples, start=1):
        found.append(predictor.score(predictor.predict(example.item).answer, example.expected))
        if number == len(examples) or pace.is_due():
            progress(f"accuracy: {number} of {counted(len(examples), 'example')}, mean score {sum(found) / number:.4f}")
    asked = limits.accuracy
    interval = mean_scores.mean(found, asked.confidence)
    distinct = len({item if isinstance(item, bytes) else canonical(item) for item in (one.item for one in examples)})
    value, low, high = (round(number, 6) for number in interval)
    summary = Score(
        metric=SCORE,
        value=value,
        low=low,
        high=high,
        n=len(found),
        distinct_texts=distinct,
        confidence=asked.confidence,
    )
    return AccuracyResult(_checks(examples, found, interval, repeats(len(found), distinct), asked), summary)


def _is_about_texts(limits: Limits) -> bool:
    asked = limits.accuracy
    regression = asked.max_regression_points is not None
    return bool(asked.floors()) or asked.above_majority or limits.golden.sha256 is not None or regression


def _checks(
    examples: Sequence[GoldenExample], found: Sequence[float], interval: Interval, note: str, limits: AccuracyLimits
) -> List[GateCheck]:
    checks = []
    if limits.min is not None:
        verdict = intervals.verdict_at_least(interval, limits.min)
        full = sum(score == _RIGHT for score in found)
        checks.append(
            GateCheck.sampled(
                limit_named("accuracy.min"),
                verdict,
                interval,
                limit=limits.min,
                n=len(found),
                confidence=limits.confidence,
                detail=joined(SCORE, message("gate.full", right=full, n=len(found)), note),
            )
        )
    if limits.max_drop_points is not None:
        checks.append(_drop([example.float_score for example in examples], found, note, limits.max_drop_points, limits))
    return checks


def _drop(
    before: Sequence[float], found: Sequence[float], note: str, limit_points: float, limits: AccuracyLimits
) -> GateCheck:
    """Paired drop of the mean score against those of the float model, `before`."""
    interval = mean_scores.drop(before, found, limits.confidence)
    lower = sum(after < score for score, after in zip(before, found))
    higher = sum(after > score for score, after in zip(before, found))
    return GateCheck.sampled(
        limit_named("accuracy.max_drop_points"),
        intervals.verdict_at_most(interval, limit_points / 100),
        Interval(*(100 * number for number in interval)),
        limit=limit_points,
        n=len(found),
        confidence=limits.confidence,
        detail=joined(SCORE, message("gate.lower", lower=lower, higher=higher), note),
    )
