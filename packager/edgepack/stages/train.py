"""Stages that train an encoder, among them `teacher` and `student`: the larger ERNIE, then the small one that ships.

The student learns from the soft labels of the teacher and from hard labels, or from hard labels alone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from edgepack.artifacts import ModelArtifact
from edgepack.recipe.encoder_shapes import Shape, parameters, pruned_shape, shape_of_model
from edgepack.recipe.training import Distill, FromScratch, FromTeacher, Student, Teacher
from edgepack.stages import keys
from edgepack.stages.data import DataStage
from edgepack.stages.stage import TRAINING, Context, Input, PlannedRows, Stage
from edgepack.training import environment
from edgepack.training.schedule import Budget
from edgepack.training.schedule import budget as budget_of
from edgepack.util.text import counted

VERSION = 10  # of teacher and student


@dataclass(frozen=True)
class PlannedJob:
    """What a stage trains, before any of it is there. A plan says it in words, and `TrainingStage.run` does it.

    Attributes:
        section: its settings.
        model: what it starts from; of a stage, its model, cut to `width`.
        teacher: what it learns from or starts as; None if it does neither.
        distill: None if it learns from the labels alone.
        width: share of the heads and neurons of each layer that stay.
    """

    section: Teacher | Student
    model: str | FromScratch | FromTeacher | TrainingStage
    teacher: TrainingStage | None = None
    distill: Distill | None = None
    width: float = 1.0

    @property
    def before(self) -> TrainingStage | None:
        """The stage whose weights it starts from; None for those of the recipe."""
        if isinstance(self.model, FromTeacher):
            assert self.teacher is not None, "the recipe's validation requires a teacher"
            return self.teacher
        return self.model if isinstance(self.model, TrainingStage) else None

    @property
    def shape(self) -> Shape | None:
        """The shape of the model, without loading it; None if it is unknown."""
        if isinstance(self.model, str | FromScratch):
            return shape_of_model(self.model, self.section.max_length)
        assert self.before is not None
        shape = self.before.training.shape
        if shape is None or isinstance(self.model, TrainingStage):
            return shape and pruned_shape(shape, shape.layers, self.width)
        layers = self.model.layers
        return pruned_shape(shape, layers if isinstance(layers, int) else len(layers), self.model.width)

    @property
    def size(self) -> str:
        """The number of weights of the model in words."""
        shape = self.shape
        if shape is None:
            return "a model of unknown size"
        first = self
        while first.before is not None:
            first = first.before.training
        # The vocabulary of a model from scratch is built from its texts, up to a maximum. Each label beyond two adds
        # some hundred weights.
        at_most = "at most " if isinstance(first.model, FromScratch) else ""
        return f"{at_most}{parameters(shape, labels=2) / 1e6:.1f} M weights"

    def rows(self, rows: PlannedRows) -> int:
        """Rows of an epoch. It may be too high: the data stage drops unlabelled texts that dev or test have, too."""
        counts = rows.counts
        return counts.get("train", 0) + (0 if self.distill is None else counts.get("unlabelled", 0))

    def budget(self, rows: PlannedRows) -> Budget | None:
        """Epochs and learning rate, as the training chooses them; None for a model of unknown shape."""
        shape, section, is_random = self.shape, self.section, isinstance(self.model, FromScratch)
        if shape is None:
            return None
        return budget_of(section, self.rows(rows), shape.hidden, section.ranks, random_weights=is_random)

    @property
    def device(self) -> str:
        """The device, without importing Paddle: `auto` is resolved when the training starts."""
        if self.section.device != "auto":
            return self.section.device
        if environment.has_gpu_build():
            return "gpu, if one can be used (auto)"
        return "cpu (auto: this Paddle is built without CUDA)"


@dataclass(frozen=True)
class TrainingStage(Stage[ModelArtifact]):
    """Trains an encoder as its `training` says. An interrupted training continues from its checkpoint."""

    section: Teacher | Student
    rows: DataStage

    kind: ClassVar[type[ModelArtifact]] = ModelArtifact
    libraries = TRAINING

    @property
    @abstractmethod
    def training(self) -> PlannedJob:
        """What it trains. `decides` has to name what of it neither `section` nor an earlier result decides."""

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        job = self.training
        return tuple(stage for stage in (self.rows, job.teacher, job.model) if isinstance(stage, Stage))

    def decides(self, ctx: Context) -> Any:
        return keys.training_section(self.section)

    def inputs(self, ctx: Context) -> list[Input]:
        job, rows = self.training, ctx[self.rows]
        start = keys.model(ctx[job.model]) if isinstance(job.model, Stage) else keys.weights(job.model)
        teacher = [] if job.teacher is None else keys.model(ctx[job.teacher])
        return [*keys.labelled(rows), *start, *teacher, *([] if job.distill is None else keys.unlabelled(rows))]

    def about(self, rows: PlannedRows) -> str:
        job, section = self.training, self.section
        cut_to = f"cut to {job.width:g} of its width, " if job.width < 1 else ""
        count, budget = job.rows(rows), job.budget(rows)
        if budget is None:
            return f"{cut_to}{job.size}; {count} rows, {job.device}"
        steps = f"{counted(budget.steps, 'step')} of {section.batch_size * section.ranks}"
        steps = f"{steps} ({count} rows x {counted(budget.epochs, 'epoch')}, learning rate {budget.learning_rate:g})"
        return f"{cut_to}{job.size}; {steps}, {job.device}"

    def run(self, ctx: Context, out: Path) -> ModelArtifact:
        environment.start(ctx.progress)
        from edgepack.training.finetune import TrainingJob, WidthPrunedModel
        from edgepack.training.launch import run_job

        job = self.training
        model = WidthPrunedModel(ctx.artifact(job.model), job.width) if isinstance(job.model, Stage) else job.model
        teacher = None if job.teacher is None else ctx.artifact(job.teacher)
        made = TrainingJob(self.kind.row_of(self.name), model, job.section, teacher, job.distill)
        return run_job(made, ctx.artifact(self.rows), out, ctx.progress, ctx.checkpoint)


@dataclass(frozen=True)
class TeacherStage(TrainingStage):
    """Trains on hard labels."""

    section: Teacher

    name = "teacher"
    version = VERSION

    @property
    def training(self) -> PlannedJob:
        return PlannedJob(self.section, self.section.model)


@dataclass(frozen=True)
class StudentStage(TrainingStage):
    """Trains on soft and hard labels, or without `distill` on hard labels.

    Attributes:
        teacher: what it learns from or begins as; None if it gives neither soft labels nor weights.
    """

    section: Student
    teacher: TeacherStage | None = None

    name = "student"
    version = VERSION

    @property
    def training(self) -> PlannedJob:
        return PlannedJob(self.section, self.section.model, self.teacher, self.section.distill)


def probe(model: str | FromScratch | FromTeacher) -> None:
    """Load the weights of a model once, to find damage before hours of training, or to download them.

    Raises:
        EnvironmentUnfitError, StageFailedError: they cannot be loaded.
    """
    environment.start()
    from edgepack.training.models import classifiers

    classifiers.probe(model)
