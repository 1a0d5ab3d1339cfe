"""One label: from logits to answers, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.stats import metrics
from edgepack_runtime.tasks.one_label import LabelPrediction, OneLabel, one_label
from edgepack_runtime.tasks.registry import ONE_TEXT, TOKENS, task_by_name
from edgepack_runtime.tasks.task import Part, unlearned_score

LABELS = ("b", "a", "c")
TASK = OneLabel("x", pairs=False)
numbers = st.floats(-1e3, 1e3, width=32)


@given(st.lists(numbers, min_size=3, max_size=3))
def test_one_label_is_the_first_highest_with_its_softmax(logits: list[float]) -> None:
    found = one_label(LABELS, logits)
    weights = np.exp(np.array(logits) - max(logits))
    assert found.label == found.answer == LABELS[int(np.argmax(logits))]
    assert list(found.scores) == list(LABELS)
    assert list(found.scores.values()) == pytest.approx(list(weights / weights.sum()))
    assert found.score == found.scores[found.label] == max(found.scores.values())


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_a_logit_that_is_no_number_is_an_error(bad: list[float]) -> None:
    with pytest.raises(StageFailedError, match="not finite"):
        one_label(("a", "b"), bad)


def test_huge_logits_do_not_overflow() -> None:
    assert one_label(("a", "b"), [3e38, -3e38]).scores == {"a": 1.0, "b": 0.0}


def test_windows_are_averaged_by_their_tokens() -> None:
    parts = [Part([math.log(3), 0.0], 1), Part([0.0, math.log(3)], 3)]
    found = TASK.predict(("a", "b"), parts, "text")
    assert found.label == "b"
    assert found.scores == pytest.approx({"a": (0.75 + 3 * 0.25) / 4, "b": (0.25 + 3 * 0.75) / 4})


def test_json() -> None:
    found = LabelPrediction("a", 0.7500001, {"b": 0.2499999, "a": 0.7500001})
    assert found.as_json(with_scores=False) == {"label": "a", "score": 0.75}
    with_all = found.as_json(with_scores=True)
    assert list(with_all["scores"].items()) == [("b", 0.25), ("a", 0.75)]
    outputs = TASK.outputs(LABELS)
    assert [output.name for output in outputs] == list(with_all)
    assert [output.name for output in outputs if not output.is_extra] == ["label", "score"]


def test_an_answer_that_leads_by_more_than_the_tolerance_must_stay() -> None:
    assert TASK.settled(LABELS, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], 1.0) == 0
    assert TASK.settled(LABELS, [1.0, 0.0, 0.0], [0.6, 0.5, 0.0], 0.5) == 1
    with pytest.raises(ValueError, match=r"is 'a' and should be 'b', which leads by 1"):
        TASK.settled(LABELS, [1.0, 0.0, 0.0], [0.5, 0.6, 0.0], 0.5)


@pytest.mark.parametrize(
    ("metric", "n_labels", "fit"), [("accuracy", 5, True), ("entity_f1", 2, False), ("f1", 2, True), ("f1", 3, False)]
)
def test_what_a_model_can_be_measured_by(metric: str, n_labels: int, fit: bool) -> None:
    assert (TASK.unfit(metric, n_labels) is None) == fit


def test_f1_is_a_value_of_two_labels_alone() -> None:
    pairs = [("1", "1"), ("1", "0"), ("0", "1"), ("0", "0")]
    assert TASK.values(pairs, ("0", "1"))[metrics.F1] == 0.5
    assert set(TASK.values(pairs, LABELS)) == {"accuracy", "macro_f1", "micro_f1"}


def test_rows_with_one_answer_show_no_learning() -> None:
    assert unlearned_score(TASK, [""] * len(["a", "a"]), ["a", "a"]) is None
    assert unlearned_score(TASK, [""] * len(["a", "b", "a", "a"]), ["a", "b", "a", "a"]) == 0.75
    assert TASK.constant_answer(["a", "b", "a", "a"], "accuracy", "ab") == "a"


def test_only_models_of_whole_texts_have_a_linear_part() -> None:
    assert task_by_name(ONE_TEXT).linear and TASK.linear and not task_by_name(TOKENS).linear
