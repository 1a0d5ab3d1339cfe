"""Labelled spans of a text: a BIO tag for each token."""

from __future__ import annotations

import math
from typing import AbstractSet, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.classification import Classification
from edgepack_runtime.tasks.task import SCORE_SCHEMA, Offsets, Output, Part, not_finite, rounded
from edgepack_runtime.util.spans import OUTSIDE, Span, tag_names, token_spans, types_of
from edgepack_runtime.util.texts import NOTHING, Item


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
        return {"spans": [{**span._asdict(), "score": rounded(span.score)} for span in self.spans]}


class LabelledSpans(Classification):
    """The spans from the most probable tag of each token; in windows, from the window that the token belongs to."""

    answer_key = "spans"
    columns: Mapping[str, str] = {"spans": '[{"start": 0, "end": 2, "label": "..."}]'}
    other_columns: Mapping[str, str] = {"tokens": '["...", "..."]', "tags": '["B-...", "I-..."]'}
    example = '{"spans": [{"start": 0, "end": 2, "label": "name", "score": 0.97, "text": "..."}]}'
    per_token = True
    linear = False
    metric_names: Tuple[str, ...] = (*Classification.metric_names, metrics.ENTITY_F1)
    usual_metric = metrics.ENTITY_F1

    def __init__(self, name: str) -> None:
        self.name = name

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        """The sorted types of the tags `labels`."""
        return types_of(labels)

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        """`O`, and two tags for each type."""
        return tag_names(classes)

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        if OUTSIDE not in labels:
            return f"has no {OUTSIDE!r}, the tag of tokens outside of spans"
        if labels[0] != OUTSIDE:
            return f"begins with {labels[0]!r}; the first tag must be {OUTSIDE!r}"
        for label in labels[1:]:
            form, dash, name = label.partition("-")
            if form not in ("B", "I") or not dash or not name:
                return f"holds {label!r}, which is not a BIO tag: `{OUTSIDE}`, `B-TYPE` or `I-TYPE`"
        return None

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        place = {"type": "integer", "minimum": 0}
        span = {"start": place, "end": place, "label": {"type": "string"}, "score": SCORE_SCHEMA}
        span["text"] = {"type": "string"}
        one = {"type": "object", "additionalProperties": False, "properties": span, "required": list(span)}
        return (Output("spans", {"type": "array", "items": one}),)

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> SpansPrediction:
        [part] = parts
        return spans(labels, part.logits, part.offsets, cast(str, item))

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[Tuple[Span, ...]]:
        if not isinstance(value, list):
            return None
        spans = [parsed_span(item, known, length) for item in value]
        found = tuple(sorted(span for span in spans if span is not None))
        return found if len(set(found)) == len(value) else None

    def answer_of(self, value: Any) -> Tuple[Span, ...]:
        return tuple(Span(*span) for span in value)

    def words(self, answer: Answer, text: Optional[str]) -> str:
        """`北京 = 地名`; `0-2 = 地名` without the text."""
        spans = cast(Sequence[Span], answer)
        return ", ".join(f"{_place(one, text)} = {one.label}" for one in spans) or NOTHING

    def answer_form(self, known: Sequence[str]) -> str:
        labels = ", ".join(known)
        return f"lists of different [start, end, label] within the text, with a label out of {labels}"


def spans(tags: Sequence[str], logits: Sequence[Sequence[float]], offsets: Offsets, text: str) -> SpansPrediction:
    """The spans from the most probable tag of each token.

    Args:
        tags: BIO tags in the order of the logits; for invalid sequences see `spans.token_spans`.
        logits: of each token, with [CLS] and [SEP]; tokens beyond `offsets` are padding.
        offsets: of the tokens, from `ErnieTokenizer.encode_with_offsets`.
        text: the text of the tokens.

    Raises:
        StageFailedError: a logit is not a number.
    """
    rows, places = logits[1 : len(offsets) - 1], offsets[1:-1]  # without [CLS] and [SEP]
    for row in rows:
        if not math.isfinite(sum(row)):
            raise not_finite(row)
    best = [tags[row.index(max(row))] for row in rows]
    found: List[SpanPrediction] = []
    for first, after, label in token_spans(best):
        start, end = places[first][0], places[after - 1][1]
        score = sum(map(_highest_probability, rows[first:after])) / (after - first)
        found.append(SpanPrediction(start, end, label, score, text[start:end]))
    return SpansPrediction(tuple(found))


def _place(span: Span, text: Optional[str]) -> str:
    return f"{span.start}-{span.end}" if text is None else text[span.start : span.end]


def _highest_probability(logits: Sequence[float]) -> float:
    """The softmax at the highest logit: 1 over the sum of exp(logit - highest)."""
    highest = max(logits)
    return 1 / sum(math.exp(value - highest) for value in logits)


def parsed_span(value: Any, known: Optional[AbstractSet[str]], length: int) -> Optional[Span]:
    """The span in a JSON value, [start, end, label]; None if it is invalid. Without `known` labels any text is one."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    start, end, label = value
    numbers = type(start) is int and type(end) is int and 0 <= start < end <= length
    is_label = isinstance(label, str) and (label in known if known is not None else label != "")
    return Span(start, end, label) if numbers and is_label else None
