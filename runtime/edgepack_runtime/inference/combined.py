"""A linear model and an encoder, as `linear` of `model.json` describes: the sum of both, or the linear model alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from edgepack_runtime.bundle.model_config import CASCADE, CONFIG_NAME, LINEAR_NAME, ONLY, LinearConfig, ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.texts import Item


class AnsweredTexts(NamedTuple):
    """Number of texts that the linear model answered alone, and of those for which the encoder ran."""

    linear: int
    encoder: int


class Combined:
    """The linear model of a model folder, and the rule by which it answers; safe to share between threads."""

    def __init__(self, model: LinearModel, config: LinearConfig, task: Task) -> None:
        self._model, self._config, self._task = model, config, task
        self._lock = threading.Lock()
        self.answered = AnsweredTexts(0, 0)

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> Optional[Combined]:
        """The linear model of `folder`; None if its configuration has no `linear`.

        Raises:
            BundleInvalidError: `linear.json` is missing or invalid, or has other labels.
        """
        if config.linear is None:
            return None
        model = LinearModel.load(folder / LINEAR_NAME)
        if model.outputs != len(config.labels):
            raise BundleInvalidError(
                f"{LINEAR_NAME} and {CONFIG_NAME} do not belong together",
                why=f"it has {model.outputs} outputs for {len(config.labels)} labels",
                fix="build the bundle again",
            )
        return cls(model, config.linear, config.text_task)

    def logits(self, items: Sequence[Item]) -> List[List[float]]:
        """The linear model's logits of each item."""
        return list(map(self._model.logits, items))

    def answers_alone(self, logits: Sequence[Sequence[float]]) -> List[bool]:
        """Whether the linear model answers each text alone, from its logits."""
        if self._config.mode == CASCADE:
            least = self._config.least_lead
            return [self._task.lead(row) >= least for row in logits]
        return [self._config.mode == ONLY] * len(logits)

    def sum(self, encoder: Sequence[float], linear: Sequence[float]) -> List[float]:
        """Logits of both models together."""
        ours, theirs = self._config.encoder_weight, self._config.linear_weight
        return [ours * value + theirs * other for value, other in zip(encoder, linear)]

    def count(self, alone: Sequence[bool]) -> None:
        """Add texts to `answered`."""
        linear = sum(alone)
        with self._lock:
            before = self.answered
            self.answered = AnsweredTexts(before.linear + linear, before.encoder + len(alone) - linear)
