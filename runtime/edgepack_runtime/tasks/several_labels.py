"""Any number of labels for a text, or for a pair of texts."""

from __future__ import annotations

import math
from typing import AbstractSet, Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer, Pair
from edgepack_runtime.tasks.classification import Classification
from edgepack_runtime.tasks.task import SCORE_SCHEMA, Output, Part, not_finite, rounded
from edgepack_runtime.util.texts import Item

LEAST_SCORE = 0.5  # minimum probability of each label


class LabelsPrediction(NamedTuple):
    """Several labels: those with a probability (sigmoid, 0 to 1) of at least 0.5, in model order; may be empty.

    `scores` has the independent probability of each label, in model order.
    """

    labels: Tuple[str, ...]
    scores: Mapping[str, float]

    @property
    def answer(self) -> Tuple[str, ...]:
        return tuple(sorted(self.labels))

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`labels` and their `scores`; on request the `scores` of all labels."""
        shown = self.scores if with_scores else self.labels
        return {"labels": list(self.labels), "scores": {label: rounded(self.scores[label]) for label in shown}}


class SeveralLabels(Classification):
    """Each label with a probability of at least 0.5; for windows, each with its highest probability."""

    answer_key = "labels"
    columns: Mapping[str, str] = {"labels": '["...", "..."]'}
    example = '{"labels": ["a", "b"], "scores": {...}}'
    multi_label = True
    usual_metric = metrics.MICRO_F1

    def __init__(self, name: str, *, pairs: bool) -> None:
        self.name, self.pairs = name, pairs

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        return (
            Output("labels", {"type": "array", "items": {"type": "string", "enum": list(labels)}}),
            Output("scores", {"type": "object", "additionalProperties": SCORE_SCHEMA}, by_label=True),
        )

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> LabelsPrediction:
        found = [several_labels(labels, part.logits) for part in parts]
        if len(found) == 1:
            return found[0]
        return _chosen({label: max(part.scores[label] for part in found) for label in labels})

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        return sum(abs(value) > tolerance for value in wanted)  # none of these can have changed its sign

    def lead(self, logits: Sequence[float]) -> float:
        return min(map(abs, logits))

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[Tuple[str, ...]]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item in known for item in value):
            return None
        return tuple(sorted(value)) if len(set(value)) == len(value) else None

    def answer_of(self, value: Any) -> Tuple[str, ...]:
        return tuple(value)

    def probability(self, prediction: LabelsPrediction, truth: Answer) -> Optional[float]:
        """The lowest one of its labels."""
        wanted = set(truth)
        return min(value if name in wanted else 1 - value for name, value in prediction.scores.items())

    def answer_form(self, known: Sequence[str]) -> str:
        return "lists of different labels out of {}".format(", ".join(known))

    def confusion(self, pairs: Sequence[Pair]) -> None:
        """None: several labels cannot be paired."""


def several_labels(labels: Sequence[str], logits: Sequence[float]) -> LabelsPrediction:
    """Every label with a probability of at least 0.5, which is a logit of 0.

    Raises:
        StageFailedError: a logit is not a number.
    """
    if not all(map(math.isfinite, logits)):
        raise not_finite(logits)
    return _chosen({label: _sigmoid(value) for label, value in zip(labels, logits)})


def _chosen(scores: Mapping[str, float]) -> LabelsPrediction:
    return LabelsPrediction(tuple(label for label in scores if scores[label] >= LEAST_SCORE), scores)


def _sigmoid(value: float) -> float:
    # Both forms are 1 / (1 + exp(-value)); neither can overflow where it is used.
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    weight = math.exp(value)
    return weight / (1 + weight)
