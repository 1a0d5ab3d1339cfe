"""Stage `model`: the model of a folder that its training wrote, with its head, in our own network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, LoadedArtifact
from edgepack.recipe import trained_folder
from edgepack.recipe.model import FolderModel
from edgepack.stages import keys
from edgepack.stages.stage import TRAINING, Context, Input, PlannedRows, Stage
from edgepack.training import environment


@dataclass(frozen=True)
class LoadStage(Stage[LoadedArtifact]):
    """Converts the weights, scores them, and compares the order of the labels with the dev rows.

    Errors of `run`: StageFailedError if weights are missing, unknown or of another shape; RecipeInvalidError if the
    labels are in another order.
    """

    section: FolderModel
    rows: Stage[DataArtifact]

    name = "model"
    version = 1
    kind = LoadedArtifact
    libraries = TRAINING

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,)

    def decides(self, ctx: Context) -> Any:
        return {"labels": self.section.labels, "max_length": self.section.max_length}

    def inputs(self, ctx: Context) -> list[Input]:
        files = trained_folder.read(Path(self.section.folder)).files
        return [*keys.labelled(ctx[self.rows]), *(keys.file_input(file.name, file) for file in files)]

    def about(self, rows: PlannedRows) -> str:
        return f"the folder {Path(self.section.folder).name}"

    def run(self, ctx: Context, out: Path) -> LoadedArtifact:
        environment.start(ctx.progress)
        from edgepack.training import loading

        return loading.load(self.section, ctx.artifact(self.rows), out, ctx.progress)
