"""A number: from logits to answers, and what of a row is one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.tasks.number import NUMBER_LABELS, NumberPrediction
from edgepack_runtime.tasks.registry import NUMBER, NUMBER_OF_PAIR, task_by_answer_key, task_by_name
from edgepack_runtime.tasks.task import Part, hundred_points, row_errors, unlearned_score

TASK = task_by_name(NUMBER)


def test_a_number_is_the_logit_and_windows_count_by_their_tokens() -> None:
    assert TASK.predict(NUMBER_LABELS, [Part([3.25], 7)], "x") == NumberPrediction(3.25)
    found = TASK.predict(NUMBER_LABELS, [Part([1.0], 1), Part([5.0], 3)], "x")
    assert found.answer == 4.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(StageFailedError, match="not finite"):
        TASK.predict(NUMBER_LABELS, [Part([1.0], 1), Part([bad], 1)], "x")


def test_json_and_its_schema() -> None:
    found = NumberPrediction(3.62000049)
    assert found.as_json(with_scores=True) == {"value": 3.62}
    assert [(one.name, one.schema) for one in TASK.outputs(NUMBER_LABELS)] == [("value", {"type": "number"})]


@given(st.floats(-1e9, 1e9) | st.integers(-1000, 1000))
def test_a_number_of_a_row_is_read(value: float) -> None:
    assert TASK.parse_answer(value, frozenset(), 1) == value
    assert TASK.answer_of(value) == value


@pytest.mark.parametrize("value", ["3", None, True, [3], math.nan, math.inf, 10**400, 2e16])
def test_what_is_no_number_is_none(value: object) -> None:
    assert TASK.parse_answer(value, frozenset(), 1) is None


def test_points_of_an_error_are_hundredths_of_what_the_median_leaves() -> None:
    truths = [0.0, 1.0, 2.0, 5.0]
    assert TASK.constant_answer(truths, "mae", ()) == 2.0
    assert hundred_points(TASK, "mae", truths, ()) == 2.0  # of 2, 1, 0 and 3
    assert hundred_points(TASK, "mae", [0.0, 1.0, 2.0, 1e6], ()) == 2.0  # one row does not decide it
    assert hundred_points(TASK, "mae", [1.0, 1.0, 1.0, 5.0], ()) == 1.0  # where most are equal, the mean
    assert hundred_points(TASK, "spearman", truths, ()) == 1.0
    assert row_errors(TASK, truths, [0.0, 3.0, 2.0, 4.0]) == [0.0, 2.0, 0.0, 1.0]
    assert unlearned_score(TASK, [""] * len(truths), truths) == 0.0
    assert unlearned_score(TASK, [""] * len([1.0, 1.0]), [1.0, 1.0]) is None


def test_no_linear_model_is_sure_of_a_number() -> None:
    assert TASK.lead([1e9]) == 0.0


def test_a_model_has_one_output() -> None:
    assert TASK.label_problem(("a", "b")) == "has 2 outputs, and a number is one"
    assert TASK.label_problem(("anything",)) is None
    assert TASK.classes(("value",)) == ()


def test_the_task_of_rows_with_numbers() -> None:
    assert task_by_answer_key("value", pairs=False) is TASK
    assert task_by_answer_key("value", pairs=True) is task_by_name(NUMBER_OF_PAIR)
    assert TASK.unfit("accuracy", 1) == "use spearman or pearson or mae"
    assert TASK.words(2.0, None) == "2"
