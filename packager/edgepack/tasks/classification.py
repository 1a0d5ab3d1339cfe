"""What tasks share whose answers are labels: their logits are turned into probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from edgepack import calibration
from edgepack.artifacts import NO_SCALE, Row, Scale
from edgepack.calibration import Reliability, ScoreCalibration
from edgepack.tasks.task import Array, Encoded, Float
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Part, Task

_SEED: Final = 0


class Classification:
    """Base class of such tasks; see `edgepack.tasks.task.TrainingTask`.

    Linear models are support vectors, one for each label against the others (LinearSVC: squared hinge loss, L2), with
    their scores at the best temperature (Guo et al., 2017).
    """

    device: ClassVar[Task]
    strengths: ClassVar[Sequence[float]] = (0.1, 0.3, 1.0)  # C of LinearSVC

    def __init__(self, labels: tuple[str, ...], scale: Scale) -> None:
        self.labels, self.scale = labels, scale
        self._index = {label: index for index, label in enumerate(labels)}

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        return {cls.device.answer_key: answer}

    @staticmethod
    def scale_of(rows: Iterable[Row]) -> Scale:
        return NO_SCALE  # labels have no unit

    def learnt(self, row: Row, windows: Sequence[Encoded], number: int) -> Sequence[Encoded]:
        return windows

    def divergence(self, before: Sequence[Float], after: Sequence[Float]) -> float:
        return calibration.divergence(before, after, multi_label=self.device.multi_label)

    def calibrated(
        self, dev: Sequence[Float], dev_targets: Sequence[Array], test: Sequence[Float], test_targets: Sequence[Array]
    ) -> ScoreCalibration | None:
        dev_units, test_units = calibration.units(dev, dev_targets), calibration.units(test, test_targets)
        return calibration.calibrate(dev_units, test_units, multi_label=self.device.multi_label)

    def answer(self, parts: Sequence[Part], row: Row) -> Answer:
        return self.device.predict(self.labels, parts, row.item).answer

    def truths(self, rows: Sequence[Row]) -> Array:
        """Whether a row has a label; labels that the model does not have are left out."""
        found = np.zeros((len(rows), len(self.labels)), bool)
        for number, row in enumerate(rows):
            names = self.device.classes_of(row.label)
            found[number, [self._index[name] for name in names if name in self._index]] = True
        return found

    def vectors(self, features: Any, rows: Sequence[Row], strength: float) -> tuple[Array, Array]:
        from sklearn.svm import LinearSVC  # seconds to import

        holders = self._holders(rows)

        def fitted(label: int) -> Any:
            wanted = np.zeros(len(rows), bool)
            wanted[holders[label]] = True
            return LinearSVC(C=strength, random_state=_SEED).fit(features, wanted)

        weights, bias = np.zeros((features.shape[1], len(holders))), np.zeros(len(holders))
        if len(holders) == 2 and not self.device.multi_label:
            model = fitted(1)
            half, start = model.coef_[0] / 2, model.intercept_[0] / 2
            return np.stack([-half, half], axis=1), np.array([-start, start])
        for label, those in enumerate(holders):
            if len(those) in (0, len(rows)):
                bias[label] = 1.0 if those else -1.0
                continue
            model = fitted(label)
            weights[:, label], bias[label] = model.coef_[0], model.intercept_[0]
        return weights, bias

    def _holders(self, rows: Sequence[Row]) -> list[list[int]]:
        """The rows that have each label: a table of rows x labels would take gigabytes."""
        found: list[list[int]] = [[] for _ in self.labels]
        for number, row in enumerate(rows):
            for name in self.device.classes_of(row.label):
                found[self._index[name]].append(number)
        return found

    def fitted(self, logits: Array, truths: Array) -> Scale:
        return Scale(1 / calibration.temperature(logits, truths, multi_label=self.device.multi_label))

    def loss(self, logits: Array, truths: Array) -> float:
        return calibration.log_loss(logits, truths, multi_label=self.device.multi_label)

    def mixing_weights(self, logits: Sequence[Array], truths: Array) -> list[float]:
        return calibration.mixing_weights(logits, truths, multi_label=self.device.multi_label)

    def reliability(self, logits: Array, truths: Array) -> Reliability | None:
        return calibration.reliability(logits, truths, multi_label=self.device.multi_label)
