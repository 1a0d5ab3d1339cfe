"""Several labels: from logits to answers, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.tasks.several_labels import LabelsPrediction, SeveralLabels, several_labels
from edgepack_runtime.tasks.task import Part

LABELS = ("b", "a", "c")
TASK = SeveralLabels("x", pairs=False)
numbers = st.floats(-1e3, 1e3, width=32)


@given(st.lists(numbers, min_size=3, max_size=3))
def test_several_labels_are_those_at_least_as_likely_as_not(logits: list[float]) -> None:
    found = several_labels(LABELS, logits)
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-np.array(logits)))
    assert list(found.scores) == list(LABELS)
    assert list(found.scores.values()) == pytest.approx(list(expected))
    assert found.labels == tuple(label for label in LABELS if found.scores[label] >= 0.5)
    assert found.answer == tuple(sorted(found.labels))
    assert {label for label, logit in zip(LABELS, logits, strict=True) if logit >= 0} <= set(found.labels)


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_a_logit_that_is_no_number_is_an_error(bad: list[float]) -> None:
    with pytest.raises(StageFailedError, match="not finite"):
        several_labels(("a", "b"), bad)


def test_huge_logits_do_not_overflow() -> None:
    assert several_labels(("a", "b"), [3e38, -3e38]).scores == {"a": 1.0, "b": 0.0}


def test_of_windows_each_label_has_its_highest_probability() -> None:
    found = TASK.predict(("a", "b"), [Part([0.0, -9.0], 1), Part([-9.0, 0.0], 3)], "text")
    assert found.labels == ("a", "b")
    assert found.scores == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("prediction", "short", "long"),
    [
        (
            LabelsPrediction(("b", "a"), {"b": 0.9, "a": 0.8, "c": 0.1}),
            {"b": 0.9, "a": 0.8},
            {"b": 0.9, "a": 0.8, "c": 0.1},
        ),
        (LabelsPrediction((), {"b": 0.1}), {}, {"b": 0.1}),
    ],
)
def test_json(prediction: LabelsPrediction, short: dict[str, float], long: dict[str, float]) -> None:
    for with_scores, scores in ((False, short), (True, long)):
        expected = {"labels": list(prediction.labels), "scores": scores}
        assert prediction.as_json(with_scores=with_scores) == expected
        assert [output.name for output in TASK.outputs(LABELS)] == list(expected)


def test_every_logit_that_is_farther_from_0_than_the_tolerance_is_settled() -> None:
    assert TASK.settled(LABELS, [0.1, -2.0, 3.0], [0.0, -1.9, 3.1], 0.2) == 2


@pytest.mark.parametrize("metric", ["f1", "entity_f1"])
def test_what_it_cannot_be_measured_by(metric: str) -> None:
    assert TASK.unfit(metric, 2) is not None
    assert TASK.unfit("macro_f1", 5) is None
    assert TASK.unfit("of another task", 5) is not None


@pytest.mark.parametrize(
    ("value", "answer"), [(["b", "a"], ("a", "b")), ([], ()), (["a", "a"], None), (["x"], None), ("a", None)]
)
def test_answers_of_rows(value: object, answer: tuple[str, ...] | None) -> None:
    assert TASK.parse_answer(value, frozenset(LABELS), 1) == answer
