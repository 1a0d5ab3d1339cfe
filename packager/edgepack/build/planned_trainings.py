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
from edgepack.recipe.model import Recipe
from edgepack.recipe.pretrained_models import Shape, cut, parameters, shape_of
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher
from edgepack.stages.keys import PRETRAINED
from edgepack.stages.stage import MadeOf
from edgepack.training import environment
from edgepack.training.schedule import Budget, budget
from edgepack.util.text import counted

# A step multiplies each token with each weight three times: forward, and backward for inputs and for weights.
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
    """The rows of each split, and of the training rows estimated tokens -> number of texts."""

    counts: Mapping[Split, int]
    tokens: Mapping[int, int]


def planned_rows(recipe: Recipe, found: DataArtifact | None) -> Rows:
    """The rows of a build: of its cached data `found`, else counted in the files.

    Raises:
        RecipeInvalidError: the data cannot be used.
    """
    if found is not None:
        return Rows(found.rows, found.token_counts.get("train", {}))
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
    """One training of a recipe, of the section that holds its settings."""

    stage: str
    section: Teacher | Student
    recipe: Recipe
    rows: Rows

    @property
    def steps(self) -> int | None:
        """The number of steps, if it does not end early; None for a model of unknown width."""
        return None if self._budget is None else self._budget.steps

    @property
    def about(self) -> str:
        """Size, steps, learning rate and device in words."""
        section, rows, chosen = self.section, self._train_rows, self._budget
        cut_to = f"cut to {self._width:g} of its width, " if self.stage == "width_pruning" else ""
        if chosen is None:
            return f"{cut_to}a model of unknown size; {rows} rows, {self._device}"
        steps = f"{counted(chosen.steps, 'step')} of {section.batch_size * section.ranks}"
        steps = f"{steps} ({rows} rows x {counted(chosen.epochs, 'epoch')}, learning rate {chosen.learning_rate:g})"
        return f"{cut_to}{self._size}; {steps}, {self._device}"

    def estimate(self, made_of: MadeOf | None, earlier: Sequence[Earlier], workspace: Workspace) -> Estimate | None:
        """The time of the newest `earlier` training of such a model, scaled; else a rough figure; None for a GPU."""
        for one in earlier:
            record = one.record
            found = workspace.peek(ModelArtifact, one)
            if made_of is None or found is None or not found.artifact.steps or not _alike(made_of, record.made_of):
                continue
            if self.steps is None:
                break
            then, section, trained = record.made_of.section, self.section, found.artifact
            a_step = trained.train_seconds / trained.steps
            longer = section.batch_size * section.max_length / (then["batch_size"] * then["max_length"])
            beside = max(0.0, record.seconds - trained.train_seconds)  # of a continued training the clock saw a part
            source = (
                f"the last {self.stage}: {a_step:.3g} s a step of {then['batch_size']} x {then['max_length']} tokens"
            )
            # Of all planned steps: when a training ends early is not known before.
            return Estimate(beside + a_step * longer * self.steps, source)
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
        """Epochs and learning rate, as the training chooses them; None for a model of unknown width."""
        shape = self._shape
        if shape is None:
            return None
        is_random = self.stage != "width_pruning" and isinstance(self.section.model, FromScratch)
        section = self.section
        return budget(section, self._train_rows, shape.hidden, section.ranks, random_weights=is_random)

    @property
    def _train_rows(self) -> int:
        """Rows of an epoch. Unlabelled texts that dev or test hold are left out only by the data stage."""
        counts, taught = self.rows.counts, self.stage != "teacher" and self.recipe.student.distill is not None
        if self.recipe.teacher is None:
            taught = self.stage == "width_pruning"  # a width-pruned student without a teacher is its own
        return counts.get("train", 0) + (counts.get("unlabelled", 0) if taught else 0)

    @property
    def _mean_tokens(self) -> float:
        tokens, longest = self.rows.tokens, self.section.max_length
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
        shape = shape_of(origin.model, origin.max_length)
        if shape is None:
            return None
        if isinstance(start, FromTeacher):
            shape = cut(shape, start.layers if isinstance(start.layers, int) else len(start.layers), start.width)
        return cut(shape, shape.layers, self._width)

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
