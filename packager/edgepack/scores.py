"""How good a model is on rows, as artifacts and ledger keep it. The arithmetic is the runtime's, as on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edgepack.artifacts import Answer, DataArtifact, Row, Score
from edgepack_runtime import metrics, scoring

CONFIDENCE: Final = 0.95
_ALIKE_POINTS: Final = 1e-9  # scores are quotients: a difference of two that is the limit comes out this near to it


def metric_of(data: DataArtifact) -> str:
    """What models of a task are compared by, while they are made."""
    return metrics.usual(multi_label=data.multi_label, tokens=data.task == "token-classification")


def value(metric: str, rows: Sequence[Row], answers: Sequence[Answer]) -> float:
    """`metric` (0 to 1) alone, without the work that an interval takes."""
    pairs = [(row.label, answer) for row, answer in zip(rows, answers, strict=True)]
    if metric == metrics.ACCURACY:
        return metrics.accuracy(pairs)
    return metrics.micro_f1(metrics.class_tallies(pairs))


def exceeds(lost_points: float, limit_points: float) -> bool:
    """Whether more percentage points are lost than may be, whatever floating point makes of a difference of scores."""
    return lost_points > limit_points + _ALIKE_POINTS


def score(metric: str, rows: Sequence[Row], answers: Sequence[Answer], classes: Sequence[str] = ()) -> Score:
    """`metric` with its interval at `CONFIDENCE`; `classes` are the model's, which F1 of each or of one is about."""
    truths = [row.label for row in rows]
    positive = metrics.positive_label(classes, truths) if metric == metrics.F1 else None
    found = scoring.interval(metric, truths, answers, CONFIDENCE, positive, classes)
    return Score(found.value, found.low, found.high, len(rows), CONFIDENCE, metric)


def every_score(data: DataArtifact, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, Score]:
    """The score in every metric that a gate may judge such models by.

    All of them, so that another metric of the gates needs nothing to be trained or exported again.
    """
    tokens = data.task == "token-classification"
    found: dict[str, Score] = {}
    for metric in metrics.METRICS:
        if metrics.unfit(metric, len(data.labels), multi_label=data.multi_label, tokens=tokens) is not None:
            continue
        if metric == metrics.ENTITY_F1:  # of spans, the micro average is just that
            found[metric] = replace(found[metrics.MICRO_F1], metric=metric)
        else:
            found[metric] = score(metric, rows, answers, data.labels)
    return found


def every_metric(data: DataArtifact, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, float]:
    """Every metric that has a meaning for the task, 0 to 1."""
    pairs = [(row.label, answer) for row, answer in zip(rows, answers, strict=True)]
    tokens = data.task == "token-classification"
    two = len(data.labels) == 2 and not tokens and not data.multi_label
    positive = metrics.positive_label(data.labels, [row.label for row in rows]) if two else None
    return {name: round(number, 6) for name, number in metrics.values(pairs, tokens=tokens, positive=positive).items()}
