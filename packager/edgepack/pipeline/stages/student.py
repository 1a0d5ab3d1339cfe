"""Train the student: the small ERNIE that ships, distilled from the teacher when there is one."""

from __future__ import annotations

from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.progress import Progress
from edgepack.recipe.training import Student
from edgepack.training import environment

VERSION = 5


def check(section: Student) -> None:
    """Load the student's weights once. A long training of the teacher must not come before what is missing shows.

    Raises:
        EnvironmentUnfitError, StageFailedError: when they cannot be had.
    """
    environment.start()
    from edgepack.training.models import classifiers

    classifiers.probe(section.model)


def run(
    section: Student,
    data: DataArtifact,
    teacher: ModelArtifact | None,
    out: Path,
    progress: Progress,
    checkpoint: Path,
) -> ModelArtifact:
    """Train on soft and hard labels, or on hard labels alone without `distill`; goes on from `checkpoint`."""
    environment.start(progress)
    from edgepack.training.finetune import Lesson
    from edgepack.training.launch import fit

    return fit(Lesson("student", section.model, section, teacher, section.distill), data, out, progress, checkpoint)
