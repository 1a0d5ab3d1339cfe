"""Stage `width_pruning`: keep the most important heads and neurons of the trained student, then train them again.

Width is reduced after training, as in Hou et al., "DynaBERT" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edgepack.artifacts import ModelArtifact, WidthPrunedArtifact
from edgepack.recipe.encoder_shapes import shape_of_folder
from edgepack.recipe.training import Distill, Student
from edgepack.stages import keys
from edgepack.stages.stage import Context
from edgepack.stages.train import PlannedJob, StudentStage, TeacherStage, TrainingStage


@dataclass(frozen=True)
class WidthPruningStage(TrainingStage):
    """Cuts the student to `section.width` and trains it with its own settings.

    Attributes:
        teacher: the student's teacher; None if there is none: then the student before the cut teaches.
    """

    section: Student
    student: StudentStage
    teacher: TeacherStage | None = None

    name = "width_pruning"
    version = 7
    kind = WidthPrunedArtifact
    recipe_keys = {"": "student"}  # noqa: RUF012 - never changed

    @property
    def training(self) -> PlannedJob:
        distill = Distill() if self.teacher is None else self.section.distill
        source = None if distill is None else self.teacher or self.student
        return PlannedJob(self.section, self.student, source, distill, self.section.width)

    def decides(self, ctx: Context) -> Any:
        job = self.training
        return super().decides(ctx) | {"width": job.width, "distill": job.distill and keys.dump(job.distill)}

    def run(self, ctx: Context, out: Path) -> WidthPrunedArtifact:
        student, trained = ctx.artifact(self.student), super().run(ctx, out)
        before, after = shape_of_folder(student.folder), shape_of_folder(out)
        assert before is not None and after is not None, "built networks have sizes"
        artifact = WidthPrunedArtifact(
            **{field.name: getattr(trained, field.name) for field in fields(ModelArtifact)},
            heads=after.heads,
            heads_before=before.heads,
            neurons=after.feed_forward,
            neurons_before=before.feed_forward,
            dev_score_before=student.dev_score,
        )
        ctx.progress.line(f"width_pruning: {artifact.cost}")
        return artifact
