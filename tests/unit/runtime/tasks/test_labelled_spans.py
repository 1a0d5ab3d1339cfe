"""Spans: from logits to answers, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.tasks import labelled_spans
from edgepack_runtime.tasks.labelled_spans import LabelledSpans, SpanPrediction, SpansPrediction
from edgepack_runtime.util.spans import Span, spans_of_tags

TAGS = ("O", "B-x", "I-x", "B-y", "I-y")
TASK = LabelledSpans("x")
LONGEST = 8  # tokens, [CLS] and [SEP] among them
numbers = st.floats(-1e3, 1e3, width=32)


def spans_of(logits: list[list[float]], text: str = "abc") -> SpansPrediction:
    """One character is one token."""
    places = [(0, 0), *((i, i + 1) for i in range(len(text))), (0, 0)]
    rows = [[9, 0, 0, 0, 0], *logits, [0, 9, 0, 0, 0]]
    return labelled_spans.spans(TAGS, [list(map(float, row)) for row in rows], places, text)


def test_the_score_of_a_span_is_the_mean_over_its_tokens() -> None:
    first, second = math.log(6), math.log(2)  # of five tags: 6/10 and 2/6
    found = spans_of([[0, first, 0, 0, 0], [0, 0, second, 0, 0], [1, 0, 0, 0, 0]])
    [span] = found.spans
    assert span == (0, 2, "x", pytest.approx((6 / 10 + 2 / 6) / 2), "ab")
    assert found.answer == (Span(0, 2, "x"),)


def test_cls_and_sep_are_no_part_of_a_span() -> None:
    # The last row, that of [SEP], says B-x; so does, with a text cut to nothing, all there is.
    assert spans_of([[0, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]).answer == (Span(0, 3, "y"),)
    assert spans_of([], "") == SpansPrediction(())


@given(arrays(np.float32, st.tuples(st.integers(2, LONGEST), st.just(len(TAGS))), elements=numbers), st.integers(0, 3))
def test_spans_are_those_of_the_best_tags(logits: np.ndarray, padding: int) -> None:
    n = len(logits) - 2
    places = [(0, 0), *((2 * i, 2 * i + 2) for i in range(n)), (0, 0)]
    padded = np.concatenate([logits, np.full((padding, len(TAGS)), np.nan, np.float32)])
    text = "abcdefghijklmnopqrstuvwxyz"
    found = labelled_spans.spans(TAGS, padded.tolist(), places, text)
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


def test_huge_logits_do_not_overflow() -> None:
    [span] = spans_of([[-3e38, 3e38, 0, 0, 0], [3e38, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).spans
    assert span[:4] == (0, 1, "x", 1.0)


def test_json() -> None:
    found = SpansPrediction((SpanPrediction(0, 2, "x", 1 / 3, "好店"),))
    expected = {"spans": [{"start": 0, "end": 2, "label": "x", "score": 0.333333, "text": "好店"}]}
    for with_scores in (False, True):
        assert found.as_json(with_scores=with_scores) == expected
    assert [output.name for output in TASK.outputs(TAGS)] == ["spans"]


def test_its_classes_are_the_types_of_its_tags() -> None:
    assert TASK.classes(TAGS) == ("x", "y")
    assert TASK.model_labels(("y", "x")) == TAGS


@pytest.mark.parametrize("labels", [("B-x", "O"), ("O", "E-x"), ("O", "x")])
def test_labels_are_tags(labels: tuple[str, ...]) -> None:
    assert TASK.label_problem(TAGS) is None
    assert TASK.label_problem(labels) is not None


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ([[0, 2, "x"]], (Span(0, 2, "x"),)),
        ([], ()),
        ([[0, 3, "x"]], None),
        ([[1, 1, "x"]], None),
        ([[0, 1, "z"]], None),
        ([[0, 1, "x"]] * 2, None),
        ([[0, True, "x"]], None),
        ("x", None),
    ],
)
def test_answers_of_rows(value: object, answer: tuple[Span, ...] | None) -> None:
    assert TASK.parse_answer(value, frozenset("xy"), 2) == answer


def test_what_it_can_be_measured_by() -> None:
    assert [TASK.unfit(metric, 2) is None for metric in ("accuracy", "micro_f1", "entity_f1", "f1")] == [
        *[True] * 3,
        False,
    ]
