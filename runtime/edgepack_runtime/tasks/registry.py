"""The tasks by the name that `model.json` and recipes have."""

from __future__ import annotations

from typing import Dict, Tuple

from edgepack_runtime.tasks.labelled_spans import LabelledSpans
from edgepack_runtime.tasks.one_label import OneLabel
from edgepack_runtime.tasks.several_labels import SeveralLabels
from edgepack_runtime.tasks.task import Task

ONE_TEXT, PAIR, TOKENS = TEXT_TASKS = ("text-classification", "text-pair-classification", "token-classification")
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
