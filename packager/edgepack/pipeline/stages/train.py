"""Stages `teacher` and `student`: fine-tune the larger ERNIE, then train the small one that ships.

The student learns from the soft labels of the teacher and from hard labels, or from hard labels alone.
"""

from __future__ import annotations

from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.progress import Progress
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher
from edgepack.training import environment

VERSION = 9


def teacher(section: Teacher, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """Train on hard labels. An interrupted training continues from `checkpoint`."""
    environment.start(progress)
    from edgepack.training.finetune import TrainingJob
    from edgepack.training.launch import run_job

    return run_job(TrainingJob("teacher", section.model, section), data, out, progress, checkpoint)


def student(
    section: Student,
    data: DataArtifact,
    teacher: ModelArtifact | None,
    out: Path,
    progress: Progress,
    checkpoint: Path,
) -> ModelArtifact:
    """Train on soft and hard labels, or without `distill` on hard labels. Continues from `checkpoint`."""
    environment.start(progress)
    from edgepack.training.finetune import TrainingJob
    from edgepack.training.launch import run_job

    return run_job(
        TrainingJob("student", section.model, section, teacher, section.distill), data, out, progress, checkpoint
    )


def probe(model: str | FromScratch | FromTeacher) -> None:
    """Load the weights of a model once, to find damage before hours of training, or to download them.

    Raises:
        EnvironmentUnfitError, StageFailedError: they cannot be loaded.
    """
    environment.start()
    from edgepack.training.models import classifiers

    classifiers.probe(model)
