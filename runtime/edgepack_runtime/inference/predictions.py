"""Predictions: conversion of logits to one label, several labels, or spans of the text; answers of adapters.

Each prediction from logits has an `answer` in the form of a labelled row, which metrics compare: a label, a sorted
tuple of labels, or a sorted tuple of `Span`.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple, Union

from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.util.spans import Span, token_spans

LEAST_SCORE = 0.5  # minimum probability of each of several labels
_DECIMALS = 6  # of a score in JSON


class Prediction(NamedTuple):
    """One label. `score` is its probability (softmax, 0 to 1); `scores` has those of all labels, in model order."""

    label: str
    score: float
    scores: Mapping[str, float]

    @property
    def answer(self) -> str:
        return self.label

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`label` and `score`, and on request the `scores` of all labels."""
        found: Dict[str, Any] = {"label": self.label, "score": _rounded(self.score)}
        if with_scores:
            found["scores"] = {label: _rounded(score) for label, score in self.scores.items()}
        return found


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
        return {"labels": list(self.labels), "scores": {label: _rounded(self.scores[label]) for label in shown}}


class SpanPrediction(NamedTuple):
    """A span of `text` from character `start` to `end` (exclusive; indices of a Python str) with a `label`.

    `score` is the mean probability (softmax, 0 to 1) of the tags of its tokens.
    """

    start: int
    end: int
    label: str
    score: float
    text: str


class SpansPrediction(NamedTuple):
    """`spans` in the order of the text; may be empty."""

    spans: Tuple[SpanPrediction, ...]

    @property
    def answer(self) -> Tuple[Span, ...]:
        return tuple(sorted(Span(span.start, span.end, span.label) for span in self.spans))

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`spans`, each with `start`, `end`, `label`, `score` and `text`. There are no further scores."""
        return {"spans": [{**span._asdict(), "score": _rounded(span.score)} for span in self.spans]}


class JsonPrediction(NamedTuple):
    """The answer of an adapter: any JSON value."""

    answer: Any

    def as_json(self, *, with_scores: bool) -> Any:
        """The answer. There are no further scores."""
        return self.answer


class TensorsPrediction(NamedTuple):
    """The outputs of a graph that ran without its adapter, by name."""

    tensors: Mapping[str, Tensor]

    @property
    def answer(self) -> Any:
        """The outputs as nested lists."""
        return {name: tensor.tolist() for name, tensor in self.tensors.items()}

    def as_json(self, *, with_scores: bool) -> Any:
        """The answer. There are no further scores."""
        return self.answer


AnyPrediction = Union[Prediction, LabelsPrediction, SpansPrediction, JsonPrediction, TensorsPrediction]


def one_label(labels: Sequence[str], logits: Sequence[float]) -> Prediction:
    """The label with the highest logit; the first one of equal logits.

    Raises:
        StageFailedError: a logit is not a number.
    """
    highest = max(logits)
    weights = [math.exp(value - highest) for value in logits]
    total = sum(weights)
    if not math.isfinite(total):
        raise _no_number(logits)
    scores: Dict[str, float] = {label: weight / total for label, weight in zip(labels, weights)}
    label = labels[logits.index(highest)]
    return Prediction(label, scores[label], scores)


def several_labels(labels: Sequence[str], logits: Sequence[float]) -> LabelsPrediction:
    """Every label with a probability of at least 0.5, which is a logit of 0. Raises as `one_label`."""
    if not all(map(math.isfinite, logits)):
        raise _no_number(logits)
    scores = {label: _sigmoid(value) for label, value in zip(labels, logits)}
    return LabelsPrediction(tuple(label for label in labels if scores[label] >= LEAST_SCORE), scores)


def one_label_of_parts(predictions: Sequence[Prediction], weights: Sequence[int]) -> Prediction:
    """The label with the highest mean probability over the parts, weighted by `weights`."""
    total = sum(weights)
    scores: Dict[str, float] = {
        label: sum(part.scores[label] * weight for part, weight in zip(predictions, weights)) / total
        for label in predictions[0].scores
    }
    label = max(scores, key=lambda name: scores[name])
    return Prediction(label, scores[label], scores)


def several_labels_of_parts(predictions: Sequence[LabelsPrediction]) -> LabelsPrediction:
    """All labels of the parts, each with its highest probability."""
    scores = {label: max(part.scores[label] for part in predictions) for label in predictions[0].scores}
    return LabelsPrediction(tuple(label for label in scores if scores[label] >= LEAST_SCORE), scores)


def spans(
    tags: Sequence[str], logits: Sequence[Sequence[float]], offsets: Sequence[Tuple[int, int]], text: str
) -> SpansPrediction:
    """The spans from the most probable tag of each token. Raises as `one_label`.

    Args:
        tags: BIO tags in the order of the logits; for invalid sequences see `spans.token_spans`.
        logits: of each token, with [CLS] and [SEP]; tokens beyond `offsets` are padding.
        offsets: of the tokens, from `ErnieTokenizer.encode_with_offsets`.
        text: the text of the tokens.
    """
    rows, places = logits[1 : len(offsets) - 1], offsets[1:-1]  # without [CLS] and [SEP]
    for row in rows:
        if not math.isfinite(sum(row)):
            raise _no_number(row)
    best = [tags[row.index(max(row))] for row in rows]
    found: List[SpanPrediction] = []
    for first, after, label in token_spans(best):
        start, end = places[first][0], places[after - 1][1]
        score = sum(map(_highest_probability, rows[first:after])) / (after - first)
        found.append(SpanPrediction(start, end, label, score, text[start:end]))
    return SpansPrediction(tuple(found))


def _highest_probability(logits: Sequence[float]) -> float:
    """The softmax at the highest logit: 1 over the sum of exp(logit - highest)."""
    highest = max(logits)
    return 1 / sum(math.exp(value - highest) for value in logits)


def _sigmoid(value: float) -> float:
    # Both forms are 1 / (1 + exp(-value)); neither can overflow where it is used.
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    weight = math.exp(value)
    return weight / (1 + weight)


def _no_number(logits: Sequence[Any]) -> StageFailedError:
    return StageFailedError("the model returned logits that are not finite", why=f"its logits are {logits}")


def _rounded(score: float) -> float:
    return round(float(score), _DECIMALS)
