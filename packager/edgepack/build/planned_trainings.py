"""About how long the trainings take that a build would run."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from edgepack.artifacts import ModelArtifact
from edgepack.build.workspace import Earlier, Workspace
from edgepack.recipe.encoder_shapes import parameters
from edgepack.stages.keys import PRETRAINED
from edgepack.stages.stage import MadeOf, PlannedRows
from edgepack.stages.train import PlannedJob, TrainingStage

# Operations of a step for each token and weight: three multiplications (forward, backward for inputs, backward for
# weights), each with an addition.
_OPERATIONS: Final = 6
# Share of `_gigaflops` that a training reaches: ERNIE 3.0 nano, 4.8 M weights without embeddings, took 1,125 tokens a
# second with one thread, whose matrix products reach 100 GFLOP/s.
_SHARE_OF_PEAK: Final = 0.3
_START_SECONDS: Final = 10.0  # import of Paddle, loading, scores on dev and test
_SIDE: Final = 1024  # of the measured matrices
# What makes trainings alike enough to compare their seconds a step; length and rows of a step scale them.
_ALIKE: Final = ("model", "width", "device", "precision", "gradient_accumulation")


@dataclass(frozen=True)
class Estimate:
    """About how many seconds a stage takes, and what the figure comes from."""

    seconds: float
    source: str


def training_estimate(
    stage: TrainingStage,
    rows: PlannedRows,
    made_of: MadeOf | None,
    earlier: Sequence[Earlier],
    workspace: Workspace,
) -> Estimate | None:
    """The time of the newest alike training among `earlier`, scaled; else a rough figure; None for a GPU."""
    budget, now = stage.training.budget(rows), stage.section
    if made_of is None or budget is None:
        return _rough(stage.training, rows)
    for one in earlier:
        found = workspace.peek(ModelArtifact, one)
        if found is None or not found.artifact.steps or not _alike(made_of, one.record.made_of):
            continue
        before, trained = one.record.made_of.section, found.artifact
        step_seconds = trained.train_seconds / trained.steps
        # Rows of one process: alike trainings have as many processes.
        scale = now.batch_size * now.max_length / (before["batch_size"] * before["max_length"])
        # The record of a resumed training has the time since it was resumed, so this may be negative.
        other_seconds = max(0.0, one.record.seconds - trained.train_seconds)
        tokens = f"{before['batch_size']} x {before['max_length']} tokens"
        source = f"the last {stage.name}: {step_seconds:.3g} s a step of {tokens}"
        # With all planned steps: an early end cannot be foreseen.
        return Estimate(other_seconds + step_seconds * scale * budget.steps, source)
    return _rough(stage.training, rows)


def _rough(job: PlannedJob, rows: PlannedRows) -> Estimate | None:
    shape, budget = job.shape, job.budget(rows)
    if shape is None or budget is None or not job.device.startswith("cpu"):
        return None
    # Embeddings are looked up, not multiplied.
    weights = parameters(replace(shape, vocabulary=0, positions=0, token_types=0, task_types=0), labels=2)
    tokens = budget.steps * job.section.batch_size * _mean_tokens(rows.texts_by_tokens, job.section.max_length)
    speed = 1e9 * _gigaflops()
    source = f"rough: {weights / 1e6:.1f} M weights x {tokens:.2g} tokens at {_SHARE_OF_PEAK:.0%} of {speed:.2g} FLOP/s"
    return Estimate(_START_SECONDS + _OPERATIONS * weights * tokens / (_SHARE_OF_PEAK * speed), source)


def _mean_tokens(texts_by_tokens: Mapping[int, int], longest: int) -> float:
    texts = sum(texts_by_tokens.values())
    return sum(min(length, longest) * count for length, count in texts_by_tokens.items()) / texts if texts else longest


def _alike(one: MadeOf, other: MadeOf) -> bool:
    """Whether two trainings are of the same kind of model, from the same weights, with a teacher or without."""
    return _kind(one) == _kind(other)


def _kind(made_of: MadeOf) -> list[Any]:
    section = made_of.section
    weights = [each.digest for each in made_of.inputs if each.name == PRETRAINED]
    return [*(section.get(name) for name in _ALIKE), section.get("distill") is None, weights]


@functools.cache
def _gigaflops() -> float:
    """The speed of a float32 matrix product on this machine: the best of six, because other programs may run."""
    one = np.ones((_SIDE, _SIDE), np.float32)
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        np.matmul(one, one)
        seconds.append(time.perf_counter() - started)
    return float(2 * _SIDE**3 / min(seconds) / 1e9)
