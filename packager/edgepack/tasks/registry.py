"""The training side of the tasks, by the name that recipes and `model.json` give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgepack.artifacts import DataArtifact
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.labelled_spans import LabelledSpans
from edgepack.tasks.one_label import OneLabel, OneLabelOfPair
from edgepack.tasks.several_labels import SeveralLabels, SeveralLabelsOfPair
from edgepack.tasks.task import MakeRow, TrainingTask

_TASKS: Final[tuple[type[TrainingTask], ...]] = (
    OneLabel,
    OneLabelOfPair,
    SeveralLabels,
    SeveralLabelsOfPair,
    LabelledSpans,
)
_BY_NAME: Final[Mapping[tuple[str, bool], type[TrainingTask]]] = {
    (task.device.name, task.device.multi_label): task for task in _TASKS
}


def task_of_data(data: DataArtifact) -> TrainingTask:
    """The task of a data set, with the labels of its model."""
    return _BY_NAME[data.task, data.multi_label](data.model_labels)


def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
    """The maker of rows of the task that has these columns; arguments as of `TrainingTask.row_maker`."""
    task = columns.text_task
    return _BY_NAME[task.name, task.multi_label].row_maker(columns, label_separator)
