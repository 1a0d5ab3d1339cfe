"""The tasks that edgepack answers itself, by the name that `model.json` and recipes give them."""

from __future__ import annotations

from typing import Dict, Literal, Sequence, Tuple, get_args

from edgepack_runtime.tasks.intent_slots import IntentSlots
from edgepack_runtime.tasks.labelled_spans import LabelledSpans
from edgepack_runtime.tasks.number import Number
from edgepack_runtime.tasks.one_label import OneLabel
from edgepack_runtime.tasks.reading import Reading
from edgepack_runtime.tasks.several_labels import SeveralLabels
from edgepack_runtime.tasks.task import Task

TaskName = Literal[
    "text-classification",
    "text-pair-classification",
    "token-classification",
    "text-regression",
    "text-pair-regression",
    "intent-slots",
    "reading",
]
TASK_NAMES: Tuple[TaskName, ...] = get_args(TaskName)
ONE_TEXT: TaskName = "text-classification"
PAIR: TaskName = "text-pair-classification"
TOKENS: TaskName = "token-classification"
INTENT_SLOTS: TaskName = "intent-slots"
READING: TaskName = "reading"
NUMBER: TaskName = "text-regression"
NUMBER_OF_PAIR: TaskName = "text-pair-regression"
TASKS: Tuple[Task, ...] = (
    OneLabel(ONE_TEXT, pairs=False),
    SeveralLabels(ONE_TEXT, pairs=False),
    OneLabel(PAIR, pairs=True),
    SeveralLabels(PAIR, pairs=True),
    LabelledSpans(TOKENS),
    IntentSlots(INTENT_SLOTS),
    Reading(READING),
    Number(NUMBER, pairs=False),
    Number(NUMBER_OF_PAIR, pairs=True),
)
_BY_NAME: Dict[Tuple[str, bool], Task] = {(task.name, task.multi_label): task for task in TASKS}


def task_by_name(name: str, *, multi_label: bool = False) -> Task:
    """The task with a name.

    Raises:
        KeyError: there is none, or none with several labels.
    """
    return _BY_NAME[name, multi_label]


def task_by_answer_key(answer_key: str, *, pairs: bool) -> Task:
    """The task of rows whose answer has this JSON key, with one text each or (`pairs`) two, if both are tasks.

    Raises:
        StopIteration: no task has the key.
    """
    found = [task for task in TASKS if task.answer_key == answer_key]
    return next((task for task in found if task.pairs == pairs), next(iter(found)))


def tasks_named(name: str) -> Sequence[Task]:
    """The tasks that share a name: with one label and with several; empty for an unknown name."""
    return [task for task in TASKS if task.name == name]


def answer_examples() -> Sequence[str]:
    """A prediction in JSON of each form of answer, for help texts."""
    return tuple(dict.fromkeys(task.example for task in TASKS))
