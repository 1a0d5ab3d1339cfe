"""The protocol of a task on the build side. What items and answers are, its `device` half says.

Reading, training, calibration and quantization ask the task of the rows, and know no task themselves. A new task is a
class with this protocol, a class in the runtime's `tasks`, and a line in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from edgepack.artifacts import Row, Scale
from edgepack.calibration import Reliability, ScoreCalibration
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Part, Task

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float32]
UNLABELLED: Final = -1  # target of a unit without a label, as the index of a class: only the teacher's logits count
UNLABELLED_NUMBER: Final = float("nan")  # the same, where a target is a number
NO_UNIT: Final = -100  # target of a token without an answer: padding, [CLS], [SEP]
Values = Sequence[object]  # in the order of `Columns.wanted`
MakeRow = Callable[[int, Values, FindingLog], "Row | None"]  # with the line from 1 on which the row starts


@dataclass(frozen=True)
class Encoded:
    """One row as token ids and token types (1 in the second text of a pair, else 0), of equal length.

    `offsets` has start and end of each token in characters if the task is `per_token`, as in `Part`.
    """

    ids: Sequence[int]
    types: Sequence[int]
    offsets: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


class Objective(Protocol):
    """Losses of a task, with Paddle. `scores` are the network's logits of a batch, `targets` its collated targets."""

    def collate(self, targets: list[Array], tokens: int) -> Array:
        """Targets or soft labels of a batch as one array, padded to `tokens`."""

    def units(self, targets: Any) -> tuple[Any, Any]:
        """Masks (U,), float32: units that count, and units with a label."""

    def count(self, target: Array) -> int:
        """The number of units of one row that count."""

    def hard(self, scores: Any, targets: Any) -> Any:
        """Loss of each unit against its label, (U,); any finite number for units without a label."""

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        """T^2 times the divergence of each unit from the teacher's logits, (U,)."""


class TrainingTask(Protocol):
    """A task with the labels of a data set.

    A network learns in a unit in which answers have mean 0 and deviation 1; `scale` leads from there to that of the
    rows, and becomes part of the head when the training has ended. Labels have no unit.

    Attributes:
        labels: the meanings of the logits, in order.
    """

    device: ClassVar[Task]
    labels: tuple[str, ...]
    scale: Scale

    def __init__(self, labels: tuple[str, ...], scale: Scale) -> None: ...

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        """The converter from values of `columns.wanted` to rows; `label_separator` separates labels in a cell.

        It adds what is wrong with a row to the log, and returns None for a row with an error.
        """

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        """What a labelled row has in the `columns` of the task, in JSON: `row_maker` reads it."""

    @staticmethod
    def scale_of(rows: Iterable[Row]) -> Scale:
        """The scale of training rows."""

    def target(self, row: Row, encoded: Encoded) -> Array:
        """The target of a labelled row, or of one of its windows."""

    def unlabelled(self, encoded: Encoded) -> Array:
        """The target of a row without a label."""

    def learnt(self, row: Row, windows: Sequence[Encoded], number: int) -> Sequence[Encoded]:
        """The windows of the training row `number` that are learnt; the only one of a task without windows."""

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        """The loss. `balanced` gives every class of `targets` the same total weight."""

    def divergence(self, before: Sequence[Float], after: Sequence[Float]) -> float:
        """How far the answers of one form of a model are from those of another, from 0.

        Args:
            before, after: logits of each row, (1, C), or (1, T, C) if the task is `per_token`.
        """

    def calibrated(
        self, dev: Sequence[Float], dev_targets: Sequence[Array], test: Sequence[Float], test_targets: Sequence[Array]
    ) -> ScoreCalibration | None:
        """The temperature of a model's logits, fitted on dev; None if they are no probabilities.

        Args:
            dev, test: logits of each row, (C,) or (T, C).
        """

    def answer(self, parts: Sequence[Part], row: Row) -> Answer:
        """The answer to one row, computed by the device's code: of its only part, or of those of its windows."""

    def fitted(self, logits: Array, truths: Array) -> Scale:
        """The scale of logits (R, C) that explains the truths best; it changes no order of answers."""


class LinearTask(TrainingTask, Protocol):
    """A task for models whose answers are a linear function of something.

    They are the linear model on characters, and the weighted sum of it and the encoder. Their logits are in the unit of
    the rows. Shapes: R rows, C logits.

    Attributes:
        strengths: those of the regularisation of a linear model that are tried.
    """

    strengths: ClassVar[Sequence[float]]

    def truths(self, rows: Sequence[Row]) -> Array:
        """What logits should say, (R, C)."""

    def vectors(self, features: Any, rows: Sequence[Row], strength: float) -> tuple[Array, Array]:
        """Weights (F, C) and biases (C,) of a linear model, from sparse features (R, F)."""

    def loss(self, logits: Array, truths: Array) -> float:
        """How badly logits (R, C) explain the truths."""

    def mixing_weights(self, logits: Sequence[Array], truths: Array) -> list[float]:
        """The weights of several models, at least 0, whose sum of logits (R, C) explains the truths best."""

    def reliability(self, logits: Array, truths: Array) -> Reliability | None:
        """How far probabilities can be trusted; None if there are none."""
