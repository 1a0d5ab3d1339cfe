"""Look-up of tasks by name and by the key of their answers."""

from __future__ import annotations

import pytest

from edgepack_runtime.tasks.registry import ONE_TEXT, PAIR, TOKENS, task_by_answer_key, task_by_name, tasks_named


@pytest.mark.parametrize(
    ("answer_key", "pairs", "name"),
    [("label", False, ONE_TEXT), ("labels", False, ONE_TEXT), ("label", True, PAIR), ("spans", False, TOKENS)],
)
def test_a_task_is_found_by_its_answer_and_by_its_name(answer_key: str, pairs: bool, name: str) -> None:
    task = task_by_answer_key(answer_key, pairs=pairs)
    assert task.name == name
    assert task_by_name(name, multi_label=task.multi_label) is task
    assert task in tasks_named(name)


def test_an_unknown_task_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        task_by_answer_key("spans", pairs=True)
    with pytest.raises(KeyError):
        task_by_name(TOKENS, multi_label=True)
