"""Look-up of tasks by name and by the key of their answers."""

from __future__ import annotations

import json

import pytest

from edgepack_runtime.tasks.registry import (
    ONE_TEXT,
    PAIR,
    READING,
    TASKS,
    TOKENS,
    task_by_answer_key,
    task_by_name,
    tasks_named,
)
from edgepack_runtime.tasks.task import Task


@pytest.mark.parametrize(
    ("answer_key", "pairs", "name"),
    [
        ("label", False, ONE_TEXT),
        ("labels", False, ONE_TEXT),
        ("label", True, PAIR),
        ("spans", False, TOKENS),
        ("spans", True, TOKENS),  # which has no pairs: another check names the second text
        ("answers", False, READING),  # which has pairs alone: the second column has a default
    ],
)
def test_a_task_is_found_by_its_answer_and_by_its_name(answer_key: str, pairs: bool, name: str) -> None:
    task = task_by_answer_key(answer_key, pairs=pairs)
    assert task.name == name
    assert task_by_name(name, multi_label=task.multi_label) is task
    assert task in tasks_named(name)


def test_an_unknown_task_is_an_error() -> None:
    with pytest.raises(StopIteration):
        task_by_answer_key("nothing", pairs=True)
    with pytest.raises(KeyError):
        task_by_name(TOKENS, multi_label=True)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.answer_key}")
def test_the_columns_of_a_task_hold_its_answer(task: Task) -> None:
    assert task.answer_key in task.columns
    for shown in (*task.columns.values(), *task.other_columns.values()):
        json.loads(shown)
    if task.in_cells:
        assert task.answer_in(" 1 ") and task.answer_in("") in (None, ())
