"""A number for a text, or for a pair of texts: squared errors of numbers with mean 0 and deviation 1."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from edgepack.artifacts import NO_SCALE, Row, Scale
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import texts_of
from edgepack.tasks.task import UNLABELLED_NUMBER, Array, Encoded, Float, MakeRow, Objective, Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.label_cells import NO_AGREEMENT, NOTHING_WRITTEN, number_in
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.number import MOST
from edgepack_runtime.tasks.registry import NUMBER, NUMBER_OF_PAIR, task_by_name
from edgepack_runtime.tasks.task import Part, Task


class Number:
    """See `edgepack.tasks.task.TrainingTask`. Ridge regression is the linear model."""

    device: ClassVar[Task] = task_by_name(NUMBER)
    strengths: ClassVar[Sequence[float]] = (0.3, 1.0, 3.0, 10.0)  # of the penalty on squared weights

    def __init__(self, labels: tuple[str, ...], scale: Scale) -> None:
        self.labels, self.scale = labels, scale

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        return _row

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        return {cls.device.answer_key: answer}

    @staticmethod
    def scale_of(rows: Iterable[Row]) -> Scale:
        """Standard deviation and mean of their numbers."""
        numbers = [row.label for row in rows]
        return Scale(statistics.pstdev(numbers) or 1.0, statistics.fmean(numbers)) if numbers else NO_SCALE

    def target(self, row: Row, encoded: Encoded) -> Array:
        return np.array((row.label - self.scale.shift) / self.scale.factor, dtype=np.float32)  # ()

    def unlabelled(self, encoded: Encoded) -> Array:
        return np.array(UNLABELLED_NUMBER, dtype=np.float32)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import SquaredLoss

        return SquaredLoss()

    def learnt(self, row: Row, windows: Sequence[Encoded], number: int) -> Sequence[Encoded]:
        return windows

    def divergence(self, before: Sequence[Float], after: Sequence[Float]) -> float:
        """The mean squared difference."""
        return float(np.square(np.concatenate(before) - np.concatenate(after)).mean())

    def calibrated(self, *logits_and_targets: Any) -> None:
        """None: numbers are no probabilities."""

    def answer(self, parts: Sequence[Part], row: Row) -> float:
        return float(parts[0].logits[0]) * self.scale.factor + self.scale.shift

    def truths(self, rows: Sequence[Row]) -> Array:
        return np.array([[row.label] for row in rows], np.float64)

    def vectors(self, features: Any, rows: Sequence[Row], strength: float) -> tuple[Array, Array]:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=strength, solver="lsqr").fit(features, self.truths(rows)[:, 0])
        return model.coef_[:, None], np.array([model.intercept_])

    def fitted(self, logits: Array, truths: Array) -> Scale:
        """The line with the least squares."""
        if not np.ptp(logits):
            return NO_SCALE
        factor, shift = np.polyfit(logits[:, 0], truths[:, 0], 1)
        return Scale(max(0.0, float(factor)), float(shift))

    def loss(self, logits: Array, truths: Array) -> float:
        """The mean squared error."""
        return float(np.square(logits - truths).mean())

    def mixing_weights(self, logits: Sequence[Array], truths: Array) -> list[float]:
        """Those with the least squared error."""
        from scipy.optimize import nnls  # slow to import

        weights, _ = nnls(np.concatenate(list(logits), axis=1), truths[:, 0])
        return [round(float(weight), 4) for weight in weights]

    def reliability(self, logits: Array, truths: Array) -> None:
        """None: numbers are no probabilities."""


class NumberOfPair(Number):
    """A number for a pair of texts."""

    device = task_by_name(NUMBER_OF_PAIR)


def _row(line: int, values: Values, log: FindingLog) -> Row | None:
    texts = texts_of(line, values[:-1], log)
    number = None if texts is None else number_of(line, values[-1], log)
    return None if texts is None or number is None else Row(texts[0], number, texts[1])


def number_of(line: int, value: object, log: FindingLog) -> float | None:
    """A number, with a finding if the cell has none."""
    number = number_in(value)
    if number is not None and abs(number) <= MOST:
        return number
    written = "" if value is None or value == [] else str(value).strip()
    if not written or written in NOTHING_WRITTEN or written == NO_AGREEMENT:
        log.add("rows without a number", "warning", line, message("found.no_number"), message("found.give_number"))
        return None
    reason = message("found.not_a_number" if number is None else "found.large_number", value=shortened(written))
    log.add("values that are not numbers", "error", line, reason, message("found.write_number"))
    return None
