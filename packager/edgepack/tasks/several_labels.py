"""Any number of labels for a text, or for a pair of texts: a sigmoid for each label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from edgepack.artifacts import Row
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import label_of, texts_of
from edgepack.tasks.classification import Classification
from edgepack.tasks.task import UNLABELLED, Array, Encoded, MakeRow, Objective, Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.label_cells import NOTHING_WRITTEN, labels_in
from edgepack_runtime.tasks.registry import ONE_TEXT, PAIR, task_by_name
from edgepack_runtime.tasks.task import Task


class SeveralLabels(Classification):
    """See `edgepack.tasks.task.TrainingTask`."""

    device: ClassVar[Task] = task_by_name(ONE_TEXT, multi_label=True)

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        if isinstance(columns.labels, tuple):
            return partial(_flagged, columns.labels)

        def row(line: int, values: Values, log: FindingLog) -> Row | None:
            texts = texts_of(line, values[:-1], log)
            labels = None if texts is None else _labels(line, values[-1], label_separator, log)
            return None if texts is None or labels is None else Row(texts[0], labels, texts[1])

        return row

    def target(self, row: Row, encoded: Encoded) -> Array:
        return np.array([label in row.label for label in self.labels], dtype=np.float32)  # (C,)

    def unlabelled(self, encoded: Encoded) -> Array:
        return np.full(len(self.labels), UNLABELLED, dtype=np.float32)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import SigmoidLoss

        return SigmoidLoss()


class SeveralLabelsOfPair(SeveralLabels):
    """Any number of labels for a pair of texts."""

    device = task_by_name(PAIR, multi_label=True)


def _flagged(names: Sequence[str], line: int, values: Values, log: FindingLog) -> Row | None:
    """A row with a column for each label."""
    texts = texts_of(line, values[: -len(names)], log)
    labels = []
    for name, value in zip(names, values[-len(names) :], strict=True):
        written = str(value).strip()
        flag = written.lower()
        if not flag or written in NOTHING_WRITTEN:
            reason = f"`{name}` is empty, and read as 0: this row does not have the label"
            log.add("empty cells of labels", "warning", line, reason, "write 0 there, or remove rows that nobody read")
            continue
        if flag not in FLAGS:
            reason = f"`{name}` is `{shortened(flag)}`, and neither 1 nor 0"
            fix = "write 1 in the rows that have this label, and 0 in the others"
            log.add("labels that are neither 1 nor 0", "error", line, reason, fix)
            return None
        labels += [name] if FLAGS[flag] else []
    return None if texts is None else Row(texts[0], tuple(sorted(labels)), texts[1])


# As tools and people write them.
FLAGS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "是", "√", "✓", "✔"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "否"), False),
}


def _labels(line: int, value: object, separator: LabelSeparator, log: FindingLog) -> tuple[str, ...] | None:
    """A sorted list of different labels, which may be empty."""
    found = labels_in(value)
    if isinstance(found, str):
        separators = (separator,) if isinstance(separator, str) else separator
        found = [part for part in re.split("|".join(map(re.escape, separators)), found) if part.strip()]
    if not (found is None or isinstance(found, list)):
        reason, fix = "the labels are neither a JSON list nor text", 'write them as a list: ["price", "service"]'
        log.add("labels of another type", "error", line, reason, fix)
        return None
    labels = [label_of(line, item, log) for item in found or ()]
    return None if None in labels else tuple(sorted({label for label in labels if label is not None}))
