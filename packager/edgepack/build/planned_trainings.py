"""Trainings that a build would run: the model, the steps, the device, and about how long they take."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from edgepack.artifacts import DataArtifact, ModelArtifact, Split
from edgepack.build.preflight import TRAININGS
from edgepack.build.workspace import Earlier, Workspace
from edgepack.data.splits import load_splits
from edgepack.recipe.encoder_shapes import Shape, parameters, pruned_shape, shape_of_model
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher
from edgepack.stages.keys import PRETRAINED
from edgepack.stages.stage import MadeOf
from edgepack.training import environment
from edgepack.training.schedule import Budget
from edgepack.training.schedule import budget as budget_of
from edgepack.util.text import counted

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


@dataclass(frozen=True)
class Rows:
    """The number of rows of each split, and how many training texts have each (estimated) number of tokens."""

    counts: Mapping[Split, int]
    texts_by_tokens: Mapping[int, int]


def planned_rows(recipe: Recipe, cached: DataArtifact | None) -> Rows:
    """The rows of a build: those of its `cached` data, else counted in the files.

    Raises:
        RecipeInvalidError: the data cannot be used.
    """
    if cached is not None:
        return Rows(cached.rows, cached.token_counts.get("train", {}))
    splits, wanted = load_splits(recipe.data), recipe.data.train_rows
    counts: dict[Split, int] = {name: len(rows) for name, rows in splits.rows.items()}
    if splits.unlabelled:
        counts["unlabelled"] = len(splits.unlabelled)
    if wanted is not None:
        counts["train"] = min(counts["train"], wanted)
    return Rows(counts, splits.lengths["train"].rows_by_tokens)


def planned_training(stage: str, recipe: Recipe, rows: Rows) -> PlannedTraining | None:
    """The training that `stage` runs; None if it trains no encoder."""
    section = getattr(recipe, TRAININGS[stage]) if stage in TRAININGS else None
    return None if section is None else PlannedTraining(stage, section, recipe, rows)


@dataclass(frozen=True)
class PlannedTraining:
    """One training of a recipe; `section` holds its settings."""

    stage: str
    section: Teacher | Student
    recipe: Recipe
    rows: Rows

    @property
    def steps(self) -> int | None:
        """The number of steps, if it does not end early; None for a model of unknown shape."""
        return None if self._budget is None else self._budget.steps

    @property
    def about(self) -> str:
        """Size, steps, learning rate and device in words."""
        section, rows, budget = self.section, self._train_rows, self._budget
        cut_to = f"cut to {self._width:g} of its width, " if self.stage == "width_pruning" else ""
        if budget is None:
            return f"{cut_to}a model of unknown size; {rows} rows, {self._device}"
        steps = f"{counted(budget.steps, 'step')} of {section.batch_size * section.ranks}"
        steps = f"{steps} ({rows} rows x {counted(budget.epochs, 'epoch')}, learning rate {budget.learning_rate:g})"
        return f"{cut_to}{self._size}; {steps}, {self._device}"

    def estimate(self, made_of: MadeOf | None, earlier: Sequence[Earlier], workspace: Workspace) -> Estimate | None:
        """The time of the newest alike training among `earlier`, scaled; else a rough figure; None for a GPU."""
        if made_of is None or self.steps is None:
            return self._rough()
        for one in earlier:
            found = workspace.peek(ModelArtifact, one)
            if found is None or not found.artifact.steps or not _alike(made_of, one.record.made_of):
                continue
            before, now, trained = one.record.made_of.section, self.section, found.artifact
            step_seconds = trained.train_seconds / trained.steps
            # Rows of one process: alike trainings have as many processes.
            scale = now.batch_size * now.max_length / (before["batch_size"] * before["max_length"])
            # The record of a resumed training has the time since it was resumed, so this may be negative.
            other_seconds = max(0.0, one.record.seconds - trained.train_seconds)
            tokens = f"{before['batch_size']} x {before['max_length']} tokens"
            source = f"the last {self.stage}: {step_seconds:.3g} s a step of {tokens}"
            # With all planned steps: an early end cannot be foreseen.
            return Estimate(other_seconds + step_seconds * scale * self.steps, source)
        return self._rough()

    def _rough(self) -> Estimate | None:
        shape, steps = self._shape, self.steps
        if shape is None or steps is None or not self._device.startswith("cpu"):
            return None
        # Embeddings are looked up, not multiplied.
        weights = parameters(replace(shape, vocabulary=0, positions=0, token_types=0, task_types=0), labels=2)
        tokens = steps * self.section.batch_size * self._mean_tokens
        speed = 1e9 * _gigaflops()
        source = (
            f"rough: {weights / 1e6:.1f} M weights x {tokens:.2g} tokens at {_SHARE_OF_PEAK:.0%} of {speed:.2g} FLOP/s"
        )
        return Estimate(_START_SECONDS + _OPERATIONS * weights * tokens / (_SHARE_OF_PEAK * speed), source)

    @property
    def _budget(self) -> Budget | None:
        """Epochs and learning rate, as the training chooses them; None for a model of unknown shape."""
        shape = self._shape
        if shape is None:
            return None
        is_random = self.stage != "width_pruning" and isinstance(self.section.model, FromScratch)
        section = self.section
        return budget_of(section, self._train_rows, shape.hidden, section.ranks, random_weights=is_random)

    @property
    def _train_rows(self) -> int:
        """Rows of an epoch. It may be too high: the data stage drops unlabelled texts that dev or test have, too."""
        if self.recipe.teacher is None:
            has_teacher = self.stage == "width_pruning"  # it then learns from the student as it was before
        else:
            has_teacher = self.stage != "teacher" and self.recipe.student.distill is not None
        counts = self.rows.counts
        return counts.get("train", 0) + (counts.get("unlabelled", 0) if has_teacher else 0)

    @property
    def _mean_tokens(self) -> float:
        tokens, longest = self.rows.texts_by_tokens, self.section.max_length
        texts = sum(tokens.values())
        return sum(min(length, longest) * count for length, count in tokens.items()) / texts if texts else longest

    @property
    def _width(self) -> float:
        return self.recipe.student.width if self.stage == "width_pruning" else 1.0

    @property
    def _origin(self) -> Teacher | Student:
        """The section of the model whose weights the training starts from."""
        if not isinstance(self.section.model, FromTeacher):
            return self.section
        assert self.recipe.teacher is not None, "the recipe's validation requires a teacher"
        return self.recipe.teacher

    @property
    def _shape(self) -> Shape | None:
        """The shape of the model, without loading it; None if it is unknown."""
        start, origin = self.section.model, self._origin
        assert not isinstance(origin.model, FromTeacher)
        shape = shape_of_model(origin.model, origin.max_length)
        if shape is None:
            return None
        if isinstance(start, FromTeacher):
            layers = start.layers if isinstance(start.layers, int) else len(start.layers)
            shape = pruned_shape(shape, layers, start.width)
        return pruned_shape(shape, shape.layers, self._width)  # the width that the stage prunes to; 1 for others

    @property
    def _size(self) -> str:
        """The number of weights of the model."""
        shape = self._shape
        assert shape is not None
        millions = parameters(shape, labels=2) / 1e6  # each further label adds some hundred weights
        # The vocabulary of a model from scratch is built from its texts, up to a maximum.
        return f"{'at most ' if isinstance(self._origin.model, FromScratch) else ''}{millions:.1f} M weights"

    @property
    def _device(self) -> str:
        """The device, without importing Paddle: `auto` is resolved when the training starts."""
        if self.section.device != "auto":
            return self.section.device
        if environment.has_gpu_build():
            return "gpu, if one can be used (auto)"
        return "cpu (auto: this Paddle is built without CUDA)"


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
