"""What tasks share whose answers are labels: their logits are turned into probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from edgepack import calibration
from edgepack.calibration import ScoreCalibration
from edgepack.tasks.task import Array, Float
from edgepack_runtime.tasks.task import Task


class Classification:
    """Base class of such tasks; see `edgepack.tasks.task.TrainingTask`."""

    device: ClassVar[Task]

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self._index = {label: index for index, label in enumerate(labels)}

    def divergence(self, before: Sequence[Float], after: Sequence[Float]) -> float:
        return calibration.divergence(before, after, multi_label=self.device.multi_label)

    def calibrated(
        self, dev: Sequence[Float], dev_targets: Sequence[Array], test: Sequence[Float], test_targets: Sequence[Array]
    ) -> ScoreCalibration | None:
        dev_units, test_units = calibration.units(dev, dev_targets), calibration.units(test, test_targets)
        return calibration.calibrate(dev_units, test_units, multi_label=self.device.multi_label)
