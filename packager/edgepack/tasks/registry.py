"""The training side of the tasks, by the name that recipes and `model.json` give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from edgepack.artifacts import NO_SCALE, DataArtifact, Row, Scale
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.intent_slots import IntentSlots
from edgepack.tasks.labelled_spans import LabelledSpans
from edgepack.tasks.number import Number, NumberOfPair
from edgepack.tasks.one_label import OneLabel, OneLabelOfPair
from edgepack.tasks.reading import Reading
from edgepack.tasks.several_labels import SeveralLabels, SeveralLabelsOfPair
from edgepack.tasks.task import LinearTask, MakeRow, TrainingTask
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Task

_TASKS: Final[tuple[type[TrainingTask], ...]] = (
    OneLabel,
    OneLabelOfPair,
    SeveralLabels,
    SeveralLabelsOfPair,
    LabelledSpans,
    IntentSlots,
    Reading,
    Number,
    NumberOfPair,
)
_BY_NAME: Final[Mapping[tuple[str, bool], type[TrainingTask]]] = {
    (task.device.name, task.device.multi_label): task for task in _TASKS
}


def values(task: Task, answer: Answer) -> dict[str, Any]:
    """What a row with this answer has in the columns of a task, in JSON."""
    return _BY_NAME[task.name, task.multi_label].values(answer)


def task_of_data(data: DataArtifact) -> TrainingTask:
    """The task of a data set, with the labels of its model."""
    return training_task(data.text_task, data.model_labels, data.scale)


def linear_task_of_data(data: DataArtifact) -> LinearTask:
    """The same, for a data set whose task is `linear`."""
    return cast(LinearTask, task_of_data(data))


def linear_task(task: Task, labels: tuple[str, ...]) -> LinearTask:
    """The training side of a task that is `linear`."""
    return cast(LinearTask, training_task(task, labels, NO_SCALE))


def training_task(task: Task, labels: tuple[str, ...], scale: Scale) -> TrainingTask:
    """The training side of a task; arguments as of `TrainingTask`."""
    return _BY_NAME[task.name, task.multi_label](labels, scale)


def scale_of(task: Task, rows: Iterable[Row]) -> Scale:
    """The scale of training rows of a task."""
    return _BY_NAME[task.name, task.multi_label].scale_of(rows)


def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
    """The maker of rows of the task that has these columns; arguments as of `TrainingTask.row_maker`."""
    task = columns.text_task
    return _BY_NAME[task.name, task.multi_label].row_maker(columns, label_separator)
