"""One label for a text, or for a pair of texts: a softmax over the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from edgepack.artifacts import Row
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import label_of, texts_of
from edgepack.tasks.classification import Classification
from edgepack.tasks.task import UNLABELLED, Array, Encoded, MakeRow, Objective, Values
from edgepack_runtime.tasks.registry import ONE_TEXT, PAIR, task_by_name
from edgepack_runtime.tasks.task import Task


class OneLabel(Classification):
    """See `edgepack.tasks.task.TrainingTask`."""

    device: ClassVar[Task] = task_by_name(ONE_TEXT)

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        return _row

    def target(self, row: Row, encoded: Encoded) -> Array:
        assert isinstance(row.label, str), "the data stage checks what the task needs"
        return np.array(self._index[row.label], dtype=np.int64)  # ()

    def unlabelled(self, encoded: Encoded) -> Array:
        return np.array(UNLABELLED, dtype=np.int64)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import SoftmaxLoss, balanced_weights

        return SoftmaxLoss(balanced_weights(targets, len(self.labels)) if balanced else None)


class OneLabelOfPair(OneLabel):
    """One label for a pair of texts."""

    device = task_by_name(PAIR)


def _row(line: int, values: Values, log: FindingLog) -> Row | None:
    texts = texts_of(line, values[:-1], log)
    label = None if texts is None else label_of(line, values[-1], log)
    return None if texts is None or label is None else Row(texts[0], label, texts[1])
