"""Stage `data` of a model that was trained elsewhere: its rows, of which only those of test have to be there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, Split, split_file
from edgepack.data.splits import load_known
from edgepack.recipe.model import FolderData
from edgepack.stages import keys
from edgepack.stages.data import DataStage, data_artifact, describe, write_rows
from edgepack.stages.stage import Context, Input, Stage


@dataclass(frozen=True)
class FolderRowsStage(Stage[DataArtifact]):
    """Writes the rows of a model with these `labels`, in the order of its outputs. There is always a dev split."""

    section: FolderData
    labels: tuple[str, ...]

    name = DataStage.name
    version = DataStage.version
    kind = DataArtifact

    def decides(self, ctx: Context) -> Any:
        return {**keys.data_section(self.section), "labels": self.labels}

    def inputs(self, ctx: Context) -> list[Input]:
        return keys.data_digests(self.section)

    def run(self, ctx: Context, out: Path) -> DataArtifact:
        columns = self.section.columns
        classes = columns.text_task.classes(self.labels)
        splits = load_known(self.section, classes, ctx.progress)
        counts: dict[Split, int] = {
            name: write_rows(out / split_file(name), rows, columns.answer) for name, rows in splits.rows.items()
        }
        ctx.progress.line(describe(counts, classes))
        return data_artifact(out, columns, classes, counts, splits)
