"""Stage `data` of an imported text model: its test rows, and apart from them the texts that calibrate INT8."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, Row, Split, split_file
from edgepack.data.sampling import Sampler
from edgepack.data.splits import load_known
from edgepack.recipe.model import ImportedData
from edgepack.stages import keys
from edgepack.stages.data import DataStage, data_artifact, describe, write_rows
from edgepack.stages.stage import Context, Input, Stage


@dataclass(frozen=True)
class ImportedRowsStage(Stage[DataArtifact]):
    """Writes the `test` rows of an imported model with these `labels`, in the order of its outputs.

    Attributes:
        calibration: the most rows whose texts become `unlabelled` instead, at most a quarter: what calibrates a model
            does not score it.
    """

    section: ImportedData
    labels: tuple[str, ...]
    calibration: int = 0

    name = DataStage.name
    version = DataStage.version
    kind = DataArtifact

    def decides(self, ctx: Context) -> Any:
        values = {**keys.dump(self.section), "test": Path(self.section.test).suffix, "labels": self.labels}
        return values | ({"calibration": self.calibration} if self.calibration else {})

    def inputs(self, ctx: Context) -> list[Input]:
        return [keys.file_input("test", Path(self.section.test))]

    def run(self, ctx: Context, out: Path) -> DataArtifact:
        columns = self.section.columns
        classes = columns.text_task.classes(self.labels)
        splits = load_known(self.section, classes, ctx.progress)
        rows = splits.rows["test"]
        counts: dict[Split, int] = {}
        scored: Iterable[Row] = rows
        if self.calibration:
            wanted = min(self.calibration, len(rows) // 4)
            drawn = Sampler(wanted, len(rows), "calibration")
            apart = [drawn() for _ in rows]
            texts = (row for row, taken in zip(rows, apart, strict=True) if taken)
            counts["unlabelled"] = write_rows(out / split_file("unlabelled"), texts, None)
            scored = (row for row, taken in zip(rows, apart, strict=True) if not taken)
        counts["test"] = write_rows(out / split_file("test"), scored, columns.answer)
        ctx.progress.line(describe(counts, classes))
        return data_artifact(out, columns, classes, counts, splits)
