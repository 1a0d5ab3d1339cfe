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
from edgepack.stages.data import DataStage
from edgepack.stages.stage import TRAINING, Context, Input, Stage
from edgepack.stages.train import StudentStage, TeacherStage
from edgepack.training import environment


@dataclass(frozen=True)
class WidthPruningStage(Stage[WidthPrunedArtifact]):
    """Cuts the student to `section.width` and trains it with its own settings. Continues from its checkpoint.

    Attributes:
        teacher: the student's teacher; None if there is none: then the student before the cut teaches.
    """

    section: Student
    rows: DataStage
    student: StudentStage
    teacher: TeacherStage | None = None

    name = "width_pruning"
    version = 6
    kind = WidthPrunedArtifact
    libraries = TRAINING
    recipe_keys = {"": "student"}  # noqa: RUF012 - never changed

    @property
    def _source(self) -> Stage[ModelArtifact]:
        return self.student if self.teacher is None else self.teacher

    @property
    def _distill(self) -> Distill | None:
        return Distill() if self.teacher is None else self.section.distill

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self._source, self.student)

    def decides(self, ctx: Context) -> Any:
        distill = self._distill
        return keys.training_section(self.section) | {
            "width": self.section.width,
            "distill": distill and keys.dump(distill),
        }

    def inputs(self, ctx: Context) -> list[Input]:
        rows = ctx[self.rows]
        found = [*keys.labelled(rows), *keys.model(ctx[self.student])]
        return found if self._distill is None else [*found, *keys.model(ctx[self._source]), *keys.unlabelled(rows)]

    def run(self, ctx: Context, out: Path) -> WidthPrunedArtifact:
        environment.start(ctx.progress)
        from edgepack.training.finetune import TrainingJob, WidthPrunedModel
        from edgepack.training.launch import run_job

        student, distill = ctx.artifact(self.student), self._distill
        source = None if distill is None else ctx.artifact(self._source)
        job = TrainingJob("width-pruned", WidthPrunedModel(student, self.section.width), self.section, source, distill)
        trained = run_job(job, ctx.artifact(self.rows), out, ctx.progress, ctx.checkpoint)
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
