"""Stage `graphs`: the model folder of an imported model with its handler, scored and timed on the golden examples."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.artifacts import SCORES_FILE, ExamplesArtifact, ExportArtifact, LedgerRow, ModelFile, mebibytes
from edgepack.bundle import packages
from edgepack.errors import StageFailedError
from edgepack.export import handler_answers, selection
from edgepack.export.handler_answers import RECORDED_ROWS, Answers, Run
from edgepack.imported import conversion
from edgepack.imported.conversion import (
    FLOAT_FOLDER,
    GRAPHS_KEYS,
    IMPORT_LIBRARIES,
    INT8_FOLDER,
    MOST_RUNS,
    PARITY_RUNS,
)
from edgepack.imported.examples import ExamplesStage
from edgepack.messages import message
from edgepack.progress import Progress
from edgepack.recipe.model import ImportedModel, ImportedQuantize
from edgepack.sandbox import runner as sandbox
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
from edgepack.targets.context import default_cache
from edgepack.util.text import counted
from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    CUSTOM,
    HANDLER_NAME,
    HandlerConfig,
    ModelConfig,
    dump,
    weight_bytes,
)

_LEAST_ROWS: Final = 4


@dataclass(frozen=True)
class GraphsStage(Stage[ExportArtifact]):
    """Writes `onnx-float/`, `onnx-int8/` if it is wanted, and `scores.json`.

    Error of `run`: StageFailedError if a graph is not an ONNX model, or the handler fails on an example.

    Attributes:
        handler: the Python file.
        requirements: locks the packages that the handler imports; None without any.
        quantize: whether INT8 is tried.
    """

    section: ImportedModel
    handler: Path
    requirements: Path | None
    quantize: ImportedQuantize
    examples: ExamplesStage

    name = "graphs"
    version = 3
    kind = ExportArtifact
    libraries = IMPORT_LIBRARIES
    measures = True
    recipe_keys = GRAPHS_KEYS

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.examples,)

    def decides(self, ctx: Context) -> Any:
        names = [*self.section.graphs, *(Path(file).name for file in self.section.files)]
        return {"names": names, "quantize": keys.dump(self.quantize)}

    def inputs(self, ctx: Context) -> list[Input]:
        files = [path for file in self.section.graphs.values() for path in conversion.files(file)]
        files += [*map(Path, self.section.files), self.handler]
        files += [] if self.requirements is None else [self.requirements]
        inputs = [keys.file_input(file.name, file) for file in files]
        return [keys.whole(ctx[self.examples]), *inputs, *keys.runtime()]

    def run(self, ctx: Context, out: Path) -> ExportArtifact:
        site = None
        if self.requirements is not None:
            site = packages.unpacked_here(self.requirements, ctx.targets, ctx.progress, default_cache() / "packages")
        job = functools.partial(self.write, ctx.artifact(self.examples), site, out)
        return sandbox.run(job, ExportArtifact, out, ctx.progress, stage=self.name)  # a handler reads what it likes

    def _calibration_rows(self, examples: ExamplesArtifact) -> int:
        """The first examples calibrate INT8, at most a quarter, and are not scored.

        Raises:
            StageFailedError: there are too few.
        """
        if examples.rows < _LEAST_ROWS:
            raise StageFailedError(
                "graphs: there are too few examples to calibrate INT8 with a quarter of them",
                fix=f"give at least {_LEAST_ROWS}, better 128, or set `quantize: {{method: none}}`",
            )
        return min(MOST_RUNS, examples.rows // 4)

    def write(self, examples: ExamplesArtifact, site: Path | None, out: Path, progress: Progress) -> ExportArtifact:
        """The work of `run`, in the sandbox. `site` is the folder of the packages that the handler imports."""
        folder = out / FLOAT_FOLDER
        folder.mkdir()
        sources = {
            name: conversion.write(file, folder / f"{name}.onnx", progress)
            for name, file in self.section.graphs.items()
        }
        shutil.copyfile(self.handler, folder / HANDLER_NAME)
        for file in self.section.files:
            shutil.copyfile(file, folder / Path(file).name)
        _write_config(folder, "float32", examples, self.section)
        with tempfile.TemporaryDirectory(dir=out) as scratch:
            ptq = self.quantize.method == "ptq"
            runs = Path(scratch) if ptq or any(sources.values()) else None
            apart = self._calibration_rows(examples) if ptq else 0
            [found] = handler_answers.answer(
                [folder],
                examples,
                site,
                "answers of the handler",
                progress,
                runs=runs,
                most_runs=MOST_RUNS if ptq else PARITY_RUNS,
                recorded_rows=apart or RECORDED_ROWS,
            )
            recorded = {} if runs is None else {name: handler_answers.read_runs(runs, name) for name in sources}
            compared = {
                name: conversion.parity(source, recorded[name][:PARITY_RUNS])
                for name, source in sources.items()
                if source is not None
            }
            if ptq:
                _write_int8(folder, recorded, out / INT8_FOLDER, progress)
                _write_config(out / INT8_FOLDER, "int8", examples, self.section)
        for name, off in compared.items():
            progress.line(f"graph {name} agrees with Paddle Inference to {off:.1e}")
        answers = {"float32": found}
        if ptq:
            folders = [folder, out / INT8_FOLDER]
            both = handler_answers.answer(folders, examples, site, "answers of float and INT8", progress)
            answers = {name: one.after(apart) for name, one in zip(("float32", "int8"), both, strict=True)}
        scores = {name: one.scores for name, one in answers.items()}
        (out / SCORES_FILE).write_text(json.dumps({"first": apart, **scores}) + "\n", encoding="utf-8")
        row = _row("float ONNX", folder, answers["float32"])
        if compared:
            row = replace(row, parity=max(compared.values()), parity_with="Paddle Inference")
        model = ModelFile(FLOAT_FOLDER, "float32", weight_bytes(folder), row, {row.score.metric: row.score})
        if not ptq:
            return ExportArtifact(out, None, model, None, "float32", message("ship.as_imported"))
        small_row = _row("INT8 ONNX", out / INT8_FOLDER, answers["int8"])
        small_row = replace(small_row, note=message("note.calibrated", n=apart))
        small = ModelFile(
            INT8_FOLDER, "int8", weight_bytes(out / INT8_FOLDER), small_row, {row.score.metric: small_row.score}
        )
        ships, reason = selection.choose_imported(model, small, self.quantize.max_drop_points)
        return ExportArtifact(out, None, model, small, ships.precision, reason)


def _write_int8(folder: Path, runs: Mapping[str, Sequence[Run]], target: Path, progress: Progress) -> None:
    """Write the INT8 form of a model folder, without its configuration."""
    from edgepack.export import imported_int8

    target.mkdir()
    for file in sorted(folder.iterdir()):
        if file.suffix != ".onnx":
            shutil.copyfile(file, target / file.name)
            continue
        recorded = runs[file.stem]
        if not recorded:
            raise StageFailedError(
                f"graphs: {file.stem} cannot be quantized",
                why="the handler ran it for no example",
                fix="add an example that needs it, or set `quantize: {method: none}`",
            )
        progress.line(f"quantizing {file.stem} with {counted(len(recorded), 'run')} of the examples")
        imported_int8.write(file, recorded, target / file.name)


def _write_config(folder: Path, precision: str, examples: ExamplesArtifact, section: ImportedModel) -> None:
    config = ModelConfig(CUSTOM, (), 0, precision, handler=HandlerConfig(examples.item, tuple(sorted(section.graphs))))
    (folder / CONFIG_NAME).write_bytes(dump(config))


def _row(stage: str, folder: Path, found: Answers) -> LedgerRow:
    return LedgerRow(
        stage,
        found.score,
        model_mib=mebibytes(weight_bytes(folder)),
        p50_ms=found.p50_ms,
        p95_ms=found.p95_ms,
        mean_ms=found.mean_ms,
    )
