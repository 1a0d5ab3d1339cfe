"""Fine-tune the teacher: the larger ERNIE whose soft labels the student learns from."""

from __future__ import annotations

from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.progress import Progress
from edgepack.recipe.training import Teacher
from edgepack.training import environment

VERSION = 5


def run(section: Teacher, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """Train on hard labels; an interrupted training goes on from `checkpoint`."""
    environment.start(progress)
    from edgepack.training.finetune import Lesson
    from edgepack.training.launch import fit

    return fit(Lesson("teacher", section.model, section), data, out, progress, checkpoint)
