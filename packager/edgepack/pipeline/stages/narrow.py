"""Stage `narrow`: keep the most important heads and neurons of the trained student, then train them again.

Width is reduced after training, as in Hou et al., "DynaBERT" (2020).
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact, NarrowedArtifact
from edgepack.progress import Progress
from edgepack.recipe.pretrained_models import of_folder
from edgepack.recipe.training import Distill, Student
from edgepack.training import environment

VERSION = 6


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
    """Cut `student` to `section.width` and train it with its own settings. Continues from `checkpoint`.

    Args:
        distill: settings of the distillation from `teacher`; None to train on labels alone.
        teacher: the student's teacher; the uncut student if it had none.
    """
    environment.start(progress)
    from edgepack.training.finetune import NarrowedModel, TrainingJob
    from edgepack.training.launch import run_job

    source = teacher if distill is not None else None
    job = TrainingJob("narrowed", NarrowedModel(student, section.width), section, source, distill)
    trained = run_job(job, data, out, progress, checkpoint)
    before, after = of_folder(student.folder), of_folder(out)
    assert before is not None and after is not None, "built networks have sizes"
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
