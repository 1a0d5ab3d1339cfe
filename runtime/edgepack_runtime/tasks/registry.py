"""The tasks by the name that `model.json` and recipes have."""

from __future__ import annotations

from typing import Dict, Literal, Sequence, Tuple, get_args

from edgepack_runtime.tasks.labelled_spans import LabelledSpans
from edgepack_runtime.tasks.one_label import OneLabel
from edgepack_runtime.tasks.several_labels import SeveralLabels
from edgepack_runtime.tasks.task import Task

TaskName = Literal["text-classification", "text-pair-classification", "token-classification"]
TEXT_TASKS: Tuple[TaskName, ...] = get_args(TaskName)
ONE_TEXT: TaskName = "text-classification"
PAIR: TaskName = "text-pair-classification"
TOKENS: TaskName = "token-classification"
_TASKS: Tuple[Task, ...] = (
    OneLabel(ONE_TEXT, pairs=False),
    SeveralLabels(ONE_TEXT, pairs=False),
    OneLabel(PAIR, pairs=True),
    SeveralLabels(PAIR, pairs=True),
    LabelledSpans(TOKENS),
)
_BY_NAME: Dict[Tuple[str, bool], Task] = {(task.name, task.multi_label): task for task in _TASKS}


def task_of(name: str, *, multi_label: bool = False) -> Task:
    """The task with a name.

    Raises:
        KeyError: there is none, or none with several labels.
    """
    return _BY_NAME[name, multi_label]


def task_for(answer_key: str, *, pairs: bool) -> Task:
    """The task of rows with one text, or a pair of texts, and an answer with this key.

    Raises:
        StopIteration: there is none.
    """
    return next(task for task in _TASKS if (task.answer_key, task.pairs) == (answer_key, pairs))


def tasks_named(name: str) -> Sequence[Task]:
    """The tasks with a name, which differ in their answers; none for another name."""
    return [task for task in _TASKS if task.name == name]


def answer_keys() -> Sequence[str]:
    """The JSON keys of the answers of all tasks."""
    return tuple(dict.fromkeys(task.answer_key for task in _TASKS))
