"""One label for a text, or for a pair of texts."""

from __future__ import annotations

import math
from typing import AbstractSet, Any, Dict, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.classification import Classification
from edgepack_runtime.tasks.task import SCORE_SCHEMA, Output, Part, not_finite, rounded
from edgepack_runtime.util.texts import Item


class LabelPrediction(NamedTuple):
    """One label. `score` is its probability (softmax, 0 to 1); `scores` has those of all labels, in model order."""

    label: str
    score: float
    scores: Mapping[str, float]

    @property
    def answer(self) -> str:
        return self.label

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`label` and `score`, and on request the `scores` of all labels."""
        found: Dict[str, Any] = {"label": self.label, "score": rounded(self.score)}
        if with_scores:
            found["scores"] = {label: rounded(score) for label, score in self.scores.items()}
        return found


class OneLabel(Classification):
    """The label with the highest logit; for windows, with the highest mean probability, weighted by their tokens."""

    answer_key = "label"
    columns: Mapping[str, str] = {"label": '"..."'}
    example = '{"label": "1", "score": 0.98}'
    one_class = in_cells = True
    metric_names = (*Classification.metric_names, metrics.F1)

    def __init__(self, name: str, *, pairs: bool) -> None:
        self.name, self.pairs = name, pairs

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        return (
            Output("label", {"type": "string", "enum": list(labels)}),
            Output("score", SCORE_SCHEMA),
            Output("scores", {"type": "object", "additionalProperties": SCORE_SCHEMA}, is_extra=True, by_label=True),
        )

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> LabelPrediction:
        found = [one_label(labels, part.logits) for part in parts]
        return found[0] if len(found) == 1 else _mean(found, [part.weight for part in parts])

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[str]:
        return value if isinstance(value, str) and value in known else None

    def answer_of(self, value: Any) -> str:
        return str(value)

    def answer_in(self, cell: str) -> Optional[str]:
        from edgepack_runtime.rows.label_cells import label_in  # only tables have cells

        return label_in(cell) or None

    def probability(self, prediction: LabelPrediction, truth: Answer) -> Optional[float]:
        return prediction.scores.get(str(truth), math.nan)

    def answer_form(self, known: Sequence[str]) -> str:
        return "one of {}".format(", ".join(known))


def one_label(labels: Sequence[str], logits: Sequence[float]) -> LabelPrediction:
    """The label with the highest logit; the first one of equal logits.

    Raises:
        StageFailedError: a logit is not a number.
    """
    highest = max(logits)
    weights = [math.exp(value - highest) for value in logits]
    total = sum(weights)
    if not math.isfinite(total):
        raise not_finite(logits)
    scores: Dict[str, float] = {label: weight / total for label, weight in zip(labels, weights)}
    label = labels[logits.index(highest)]
    return LabelPrediction(label, scores[label], scores)


def _mean(predictions: Sequence[LabelPrediction], weights: Sequence[int]) -> LabelPrediction:
    total = sum(weights)
    scores: Dict[str, float] = {
        label: sum(part.scores[label] * weight for part, weight in zip(predictions, weights)) / total
        for label in predictions[0].scores
    }
    label = max(scores, key=lambda name: scores[name])
    return LabelPrediction(label, scores[label], scores)
