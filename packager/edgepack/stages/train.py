"""Stages `teacher` and `student`: fine-tune the larger ERNIE, then train the small one that ships.

The student learns from the soft labels of the teacher and from hard labels, or from hard labels alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import ModelArtifact
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher
from edgepack.stages import keys
from edgepack.stages.data import DataStage
from edgepack.stages.stage import TRAINING, Context, Input, Stage
from edgepack.training import environment

VERSION = 9  # of both stages


@dataclass(frozen=True)
class TeacherStage(Stage[ModelArtifact]):
    """Trains on hard labels. An interrupted training continues from its checkpoint."""

    section: Teacher
    rows: DataStage

    name = "teacher"
    version = VERSION
    kind = ModelArtifact
    libraries = TRAINING

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,)

    def decides(self, ctx: Context) -> Any:
        return keys.training_section(self.section)

    def inputs(self, ctx: Context) -> list[Input]:
        return [*keys.labelled(ctx[self.rows]), *keys.weights(self.section.model)]

    def run(self, ctx: Context, out: Path) -> ModelArtifact:
        environment.start(ctx.progress)
        from edgepack.training.finetune import TrainingJob
        from edgepack.training.launch import run_job

        job = TrainingJob("teacher", self.section.model, self.section)
        return run_job(job, ctx.artifact(self.rows), out, ctx.progress, ctx.checkpoint)


@dataclass(frozen=True)
class StudentStage(Stage[ModelArtifact]):
    """Trains on soft and hard labels, or without `distill` on hard labels. Continues from its checkpoint.

    Attributes:
        teacher: what it learns from or begins as; None if it gives neither soft labels nor weights.
    """

    section: Student
    rows: DataStage
    teacher: TeacherStage | None = None

    name = "student"
    version = VERSION
    kind = ModelArtifact
    libraries = TRAINING

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,) if self.teacher is None else (self.rows, self.teacher)

    def decides(self, ctx: Context) -> Any:
        return keys.training_section(self.section)

    def inputs(self, ctx: Context) -> list[Input]:
        rows = ctx[self.rows]
        found = [*keys.labelled(rows), *keys.weights(self.section.model)]
        found += [] if self.teacher is None else keys.model(ctx[self.teacher])
        return found + (keys.unlabelled(rows) if self.section.distill is not None else [])

    def run(self, ctx: Context, out: Path) -> ModelArtifact:
        environment.start(ctx.progress)
        from edgepack.training.finetune import TrainingJob
        from edgepack.training.launch import run_job

        section, teacher = self.section, None if self.teacher is None else ctx.artifact(self.teacher)
        job = TrainingJob("student", section.model, section, teacher, section.distill)
        return run_job(job, ctx.artifact(self.rows), out, ctx.progress, ctx.checkpoint)


def probe(model: str | FromScratch | FromTeacher) -> None:
    """Load the weights of a model once, to find damage before hours of training, or to download them.

    Raises:
        EnvironmentUnfitError, StageFailedError: they cannot be loaded.
    """
    environment.start()
    from edgepack.training.models import classifiers

    classifiers.probe(model)
