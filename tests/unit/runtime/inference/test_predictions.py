"""From logits to answers, by hand and against NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.inference import predictions
from edgepack_runtime.util.spans import Span, spans_of_tags

LABELS = ("b", "a", "c")
TAGS = ("O", "B-x", "I-x", "B-y", "I-y")
LONGEST = 8  # tokens, [CLS] and [SEP] among them
numbers = st.floats(-1e3, 1e3, width=32)


def spans_of(logits: list[list[float]], text: str = "abc") -> predictions.SpansPrediction:
    """One character is one token."""
    places = [(0, 0), *((i, i + 1) for i in range(len(text))), (0, 0)]
    rows = [[9, 0, 0, 0, 0], *logits, [0, 9, 0, 0, 0]]
    return predictions.spans(TAGS, [list(map(float, row)) for row in rows], places, text)


# --- one label and several ------------------------------------------------------------------------------------


@given(st.lists(numbers, min_size=3, max_size=3))
def test_one_label_is_the_first_highest_with_its_softmax(logits: list[float]) -> None:
    found = predictions.one_label(LABELS, logits)
    weights = np.exp(np.array(logits) - max(logits))
    assert found.label == found.answer == LABELS[int(np.argmax(logits))]
    assert list(found.scores) == list(LABELS)
    assert list(found.scores.values()) == pytest.approx(list(weights / weights.sum()))
    assert found.score == found.scores[found.label] == max(found.scores.values())


@given(st.lists(numbers, min_size=3, max_size=3))
def test_several_labels_are_those_at_least_as_likely_as_not(logits: list[float]) -> None:
    found = predictions.several_labels(LABELS, logits)
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-np.array(logits)))
    assert list(found.scores) == list(LABELS)
    assert list(found.scores.values()) == pytest.approx(list(expected))
    assert found.labels == tuple(label for label in LABELS if found.scores[label] >= 0.5)
    assert found.answer == tuple(sorted(found.labels))
    assert {label for label, logit in zip(LABELS, logits, strict=True) if logit >= 0} <= set(found.labels)


@pytest.mark.parametrize("decide", [predictions.one_label, predictions.several_labels])
@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_a_logit_that_is_no_number_is_an_error(decide: Callable[..., Any], bad: list[float]) -> None:
    with pytest.raises(StageFailedError, match="not finite"):
        decide(("a", "b"), bad)


def test_huge_logits_do_not_overflow() -> None:
    assert predictions.one_label(("a", "b"), [3e38, -3e38]).scores == {"a": 1.0, "b": 0.0}
    assert predictions.several_labels(("a", "b"), [3e38, -3e38]).scores == {"a": 1.0, "b": 0.0}
    [span] = spans_of([[-3e38, 3e38, 0, 0, 0], [3e38, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).spans
    assert span[:4] == (0, 1, "x", 1.0)


# --- spans ----------------------------------------------------------------------------------------------------


def test_the_score_of_a_span_is_the_mean_over_its_tokens() -> None:
    first, second = math.log(6), math.log(2)  # of five tags: 6/10 and 2/6
    found = spans_of([[0, first, 0, 0, 0], [0, 0, second, 0, 0], [1, 0, 0, 0, 0]])
    [span] = found.spans
    assert span == (0, 2, "x", pytest.approx((6 / 10 + 2 / 6) / 2), "ab")
    assert found.answer == (Span(0, 2, "x"),)


def test_cls_and_sep_are_no_part_of_a_span() -> None:
    # The last row, that of [SEP], says B-x; so does, with a text cut to nothing, all there is.
    assert spans_of([[0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]).answer == (Span(0, 3, "y"),)
    assert spans_of([], "") == predictions.SpansPrediction(())


@given(arrays(np.float32, st.tuples(st.integers(2, LONGEST), st.just(len(TAGS))), elements=numbers), st.integers(0, 3))
def test_spans_are_those_of_the_best_tags(logits: np.ndarray, padding: int) -> None:
    n = len(logits) - 2
    places = [(0, 0), *((2 * i, 2 * i + 2) for i in range(n)), (0, 0)]
    padded = np.concatenate([logits, np.full((padding, len(TAGS)), np.nan, np.float32)])
    text = "abcdefghijklmnopqrstuvwxyz"
    found = predictions.spans(TAGS, padded.tolist(), places, text)
    tags = [TAGS[index] for index in logits.argmax(axis=1)]
    assert found.answer == spans_of_tags(tags, places)
    for span in found.spans:
        rows = logits[1 + span.start // 2 : 1 + span.end // 2].astype(np.float64)
        weights = np.exp(rows - rows.max(axis=1, keepdims=True))
        assert span.score == pytest.approx((weights.max(axis=1) / weights.sum(axis=1)).mean())
        assert span.text == text[span.start : span.end]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logit_of_a_token_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(StageFailedError, match="not finite") as caught:
        spans_of([[0, 1, 2, 3, 4], [0, 0, 0, bad, 0], [0, 1, 2, 3, 4]])
    assert caught.value.why == f"its logits are [0.0, 0.0, 0.0, {bad}, 0.0]"  # one token of what may be 512


# --- JSON -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "short", "long"),
    [
        (
            predictions.Prediction("a", 0.7500001, {"b": 0.2499999, "a": 0.7500001}),
            '{"label": "a", "score": 0.75}',
            '{"label": "a", "score": 0.75, "scores": {"b": 0.25, "a": 0.75}}',
        ),
        (
            predictions.LabelsPrediction(("b", "a"), {"b": 0.9, "a": 0.8, "c": 0.1}),
            '{"labels": ["b", "a"], "scores": {"b": 0.9, "a": 0.8}}',
            '{"labels": ["b", "a"], "scores": {"b": 0.9, "a": 0.8, "c": 0.1}}',
        ),
        (
            predictions.LabelsPrediction((), {"b": 0.1}),
            '{"labels": [], "scores": {}}',
            '{"labels": [], "scores": {"b": 0.1}}',
        ),
        (
            predictions.SpansPrediction((predictions.SpanPrediction(0, 2, "x", 1 / 3, "好店"),)),
            '{"spans": [{"start": 0, "end": 2, "label": "x", "score": 0.333333, "text": "好店"}]}',
            '{"spans": [{"start": 0, "end": 2, "label": "x", "score": 0.333333, "text": "好店"}]}',
        ),
    ],
)
def test_the_json_of_a_prediction(prediction: predictions.AnyPrediction, short: str, long: str) -> None:
    for with_scores, expected in ((False, short), (True, long)):
        assert json.dumps(prediction.as_json(with_scores=with_scores), ensure_ascii=False) == expected
