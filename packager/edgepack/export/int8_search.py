"""Search for the best INT8 model, by the runtime's answers on the dev rows.

Every method to quantize is tried. Of the one that loses least, each part is tried in float, which measures its cost. If
the model loses more than allowed, parts return to float in order of cost until it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Int8Choice, PartCost, Quantization, Trial
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.int8_ranges import in_float, int8_parts
from edgepack.progress import Progress
from edgepack.tasks.registry import task_of_data
from edgepack.util.text import counted
from edgepack_runtime.inference.predictor import Predictor

SAMPLE: Final = 256  # dev rows, at most, that tell how far answers diverge


class Trials:
    """Compares models with the float model on the dev rows.

    Args:
        float_model: the float model in its shipped form.
        opened: loads an encoder in its shipped form.
        data: source of the dev rows.
    """

    def __init__(
        self, float_model: Predictor, opened: Callable[[Encoder], Predictor], data: DataArtifact, progress: Progress
    ) -> None:
        self._opened, self._data, self._progress = opened, data, progress
        self.rows = data.read("dev")
        self._sample = self.rows[:: -(-len(self.rows) // SAMPLE)]
        self._value = self._score("float", float_model)
        self._logits = evaluation.logits(float_model, self._sample)

    def trial(self, name: str, encoder: Encoder) -> Trial:
        """The loss on all dev rows, and the divergence of answers on a sample."""
        model = self._opened(encoder)
        return Trial(name, 100 * (self._value - self._score(name, model)), self._divergence(model))

    def divergence(self, encoder: Encoder) -> float:
        """Mean divergence of answers on the sample, in nats."""
        return self._divergence(self._opened(encoder))

    def may_lose(self, limit_points: float | None) -> float:
        """The allowed loss in percentage points: `limit`, but at least the share of one row. None without a limit.

        One changed answer costs 100 / rows points of accuracy. It may cost more or less F1, which counts labels or
        spans.
        """
        return math.inf if limit_points is None else max(limit_points, 100 / len(self.rows))

    def _score(self, name: str, model: Predictor) -> float:
        answers = evaluation.answers(model, self.rows, f"{name} on dev", self._progress)
        return evaluation.value(self._data.text_task, self.rows, answers, self._data.labels)

    def _divergence(self, model: Predictor) -> float:
        return task_of_data(self._data).divergence(self._logits, evaluation.logits(model, self._sample))


def choose(
    methods: Sequence[tuple[Quantization, Encoder]], trials: Trials, limit_points: float | None, progress: Progress
) -> tuple[Encoder, Int8Choice]:
    """The best INT8 model within the limit, and the record of its search.

    Args:
        methods: quantizations with the encoders that have their ranges; at least one.
        trials: comparison with the float model.
        limit_points: allowed loss in percentage points; the share of one row is always allowed. None: no limit.
    """
    done = [trials.trial(method.name, encoder) for method, encoder in methods]
    best = min(range(len(methods)), key=lambda number: (done[number].drop_points, done[number].divergence))
    encoder, start = methods[best][1], done[best]
    parts = _costs(encoder, start.divergence, trials, progress)
    made = Int8Choice(tuple(done), start.method, parts, (), start.drop_points, limit_points, len(trials.rows))
    return _settled(encoder, made, trials, progress)


def elsewhere(encoder: Encoder, made: Int8Choice, trials: Trials, progress: Progress) -> tuple[Encoder, Int8Choice]:
    """The model of `choose` in the form of `trials`, with weights of 7 bits, which round differently.

    Float parts stay float; more return to float if the loss exceeds the limit.
    """
    found = trials.trial(made.method, encoder)
    return _settled(encoder, replace(made, drop_points=found.drop_points), trials, progress)


def _settled(encoder: Encoder, made: Int8Choice, trials: Trials, progress: Progress) -> tuple[Encoder, Int8Choice]:
    """The encoder with further parts in float, the most expensive first, until the loss is within the limit."""
    kept, drop_points = list(made.kept_float), made.drop_points
    most = trials.may_lose(made.limit_points)
    while evaluation.exceeds(drop_points, most) and len(kept) < len(made.parts):
        kept.append(made.parts[len(kept)].part)
        drop_points = trials.trial(f"{counted(len(kept), 'part')} float", in_float(encoder, kept)).drop_points
        progress.line(
            f"{kept[-1]} returned to float: the model is {drop_points:.2f} points below the float model on dev"
        )
    return in_float(encoder, kept), replace(made, kept_float=tuple(kept), drop_points=drop_points)


def _costs(encoder: Encoder, whole: float, trials: Trials, progress: Progress) -> tuple[PartCost, ...]:
    """The cost of each part, the most expensive first."""
    names = int8_parts(encoder)
    costs = []
    with progress.task("cost of each INT8 part", len(names)) as task:
        for name in names:
            costs.append(PartCost(name, whole - trials.divergence(in_float(encoder, [name]))))
            task.advance(note=name)
    return tuple(sorted(costs, key=lambda cost: -cost.divergence))
