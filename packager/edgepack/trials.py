"""Smaller forms of a model on the dev rows, by the runtime, against the float model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from edgepack import scores
from edgepack.artifacts import DataArtifact
from edgepack.graph.divergence import divergence
from edgepack.graph.encoder import Encoder
from edgepack.progress import Progress
from edgepack.quantization import Tried
from edgepack.targets import measure
from edgepack_runtime.predictor import Predictor

SAMPLE: Final = 256  # dev rows, at most, that tell how far answers diverge


class Trials:
    """Asks models about the dev rows, and holds their answers against those of the float model.

    Args:
        float_model: as it would ship.
        opened: loads an encoder as it would ship.
        data: whose dev rows are asked.
    """

    def __init__(
        self, float_model: Predictor, opened: Callable[[Encoder], Predictor], data: DataArtifact, progress: Progress
    ) -> None:
        self._opened, self._multi_label, self._progress = opened, data.multi_label, progress
        self._metric = scores.metric_of(data)
        self.rows = data.read("dev")
        self._sample = self.rows[:: -(-len(self.rows) // SAMPLE)]
        self._value = self._score("float", float_model)
        self._logits = measure.logits(float_model, self._sample)

    def tried(self, name: str, encoder: Encoder) -> Tried:
        """What is lost on all rows, and how far answers diverge on the sample."""
        model = self._opened(encoder)
        return Tried(name, 100 * (self._value - self._score(name, model)), self._divergence(model))

    def divergence(self, encoder: Encoder) -> float:
        """How far answers diverge on the sample, in nats."""
        return self._divergence(self._opened(encoder))

    def may_lose(self, limit_points: float | None) -> float:
        """How many percentage points may be lost where the limit is this. None for no limit.

        The share of one row, 100 / rows, always may: of accuracy that is one row answered otherwise. F1 counts labels
        or spans, of which a row may hold several or none, so one row may cost it more than this share, or less.
        """
        return math.inf if limit_points is None else max(limit_points, 100 / len(self.rows))

    def _score(self, name: str, model: Predictor) -> float:
        answers = measure.answers(model, self.rows, f"{name} on dev", self._progress)
        return scores.value(self._metric, self.rows, answers)

    def _divergence(self, model: Predictor) -> float:
        return divergence(self._logits, measure.logits(model, self._sample), multi_label=self._multi_label)
