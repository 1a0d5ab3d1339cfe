"""Narrow the trained student: the heads and neurons that matter most to it stay, and these are trained once more.

Width is taken away when the whole student has learnt, and not before, as in Hou et al., "DynaBERT" (2020).
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact, NarrowedArtifact
from edgepack.progress import Progress
from edgepack.recipe.pretrained_models import of_folder
from edgepack.recipe.training import Distill, Student
from edgepack.training import environment

VERSION = 2


def run(
    section: Student,
    distill: Distill | None,
    data: DataArtifact,
    student: ModelArtifact,
    teacher: ModelArtifact,
    out: Path,
    progress: Progress,
    checkpoint: Path,
) -> NarrowedArtifact:
    """Cut `student` to `section.width` and train it with its own settings; goes on from `checkpoint`.

    Args:
        distill: what it learns from `teacher` beside the labels; None for the labels alone.
        teacher: the student's, or where it had none the student itself, as it is before the cut.
    """
    environment.start(progress)
    from edgepack.training.finetune import Lesson, Narrowing
    from edgepack.training.launch import fit

    source = teacher if distill is not None else None  # what it learns nothing from decides nothing
    lesson = Lesson("narrowed", Narrowing(student, section.width), section, source, distill)
    trained = fit(lesson, data, out, progress, checkpoint)
    before, after = of_folder(student.folder), of_folder(out)
    assert before is not None and after is not None, "networks that were built have sizes"
    artifact = NarrowedArtifact(
        **{field.name: getattr(trained, field.name) for field in fields(ModelArtifact)},
        heads=after.heads,
        heads_before=before.heads,
        neurons=after.feed_forward,
        neurons_before=before.feed_forward,
        dev_score_before=student.dev_score,
    )
    progress.line(f"narrow: {artifact.cost}")
    return artifact
