"""One INT8 model out of several ways to quantize, by what the runtime answers on the dev rows.

Each way is tried. Of the one that loses least, every part is tried in float while the rest stays INT8, which tells what
the part costs; where the model loses more than it may, parts go back to float in that order until it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Int8Choice, PartCost, Quantization, Tried
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.parity import divergence
from edgepack.onnx_graph.quantize import in_float, int8_parts
from edgepack.progress import Progress
from edgepack.util.text import counted
from edgepack_runtime.inference.predictor import Predictor

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
        self._metric = evaluation.metric_of(data)
        self.rows = data.read("dev")
        self._sample = self.rows[:: -(-len(self.rows) // SAMPLE)]
        self._value = self._score("float", float_model)
        self._logits = evaluation.logits(float_model, self._sample)

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
        answers = evaluation.answers(model, self.rows, f"{name} on dev", self._progress)
        return evaluation.value(self._metric, self.rows, answers)

    def _divergence(self, model: Predictor) -> float:
        return divergence(self._logits, evaluation.logits(model, self._sample), multi_label=self._multi_label)


def choose(
    ways: Sequence[tuple[Quantization, Encoder]], trials: Trials, limit_points: float | None, progress: Progress
) -> tuple[Encoder, Int8Choice]:
    """The model that is INT8 wherever it may be, and how it came to be.

    Args:
        ways: at least one, each with the encoder that has its ranges.
        trials: of the float model.
        limit_points: what may be lost, in percentage points of the metric; the share of one row always may. None
            for anything.
    """
    tried = [trials.tried(way.name, encoder) for way, encoder in ways]
    best = min(range(len(ways)), key=lambda number: (tried[number].drop_points, tried[number].divergence))
    encoder, start = ways[best][1], tried[best]
    parts = _costs(encoder, start.divergence, trials, progress)
    made = Int8Choice(tuple(tried), start.way, parts, (), start.drop_points, limit_points, len(trials.rows))
    return _settled(encoder, made, trials, progress)


def elsewhere(encoder: Encoder, made: Int8Choice, trials: Trials, progress: Progress) -> tuple[Encoder, Int8Choice]:
    """The model of `choose` as `trials` open it, with weights of 7 bits: they round otherwise.

    Parts that are float stay so; more follow where more is lost there than may be.
    """
    found = trials.tried(made.way, encoder)
    return _settled(encoder, replace(made, drop_points=found.drop_points), trials, progress)


def _settled(encoder: Encoder, made: Int8Choice, trials: Trials, progress: Progress) -> tuple[Encoder, Int8Choice]:
    """With further parts in float, the dearest first, until no more is lost than may be."""
    kept, drop_points = list(made.kept_float), made.drop_points
    most = trials.may_lose(made.limit_points)
    while evaluation.exceeds(drop_points, most) and len(kept) < len(made.parts):
        kept.append(made.parts[len(kept)].part)
        drop_points = trials.tried(f"{counted(len(kept), 'part')} float", in_float(encoder, kept)).drop_points
        progress.line(f"{kept[-1]} goes back to float: {drop_points:.2f} points below float on dev")
    return in_float(encoder, kept), replace(made, kept_float=tuple(kept), drop_points=drop_points)


def _costs(encoder: Encoder, whole: float, trials: Trials, progress: Progress) -> tuple[PartCost, ...]:
    """What each part costs, the dearest first."""
    names = int8_parts(encoder)
    costs = []
    with progress.task("what each INT8 part costs", len(names)) as task:
        for name in names:
            costs.append(PartCost(name, whole - trials.divergence(in_float(encoder, [name]))))
            task.advance(note=name)
    return tuple(sorted(costs, key=lambda cost: -cost.divergence))
