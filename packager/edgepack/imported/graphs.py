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

from edgepack.artifacts import (
    SCORES_FILE,
    ExamplesArtifact,
    ExportArtifact,
    LedgerRow,
    ModelFile,
    Precision,
    mebibytes,
)
from edgepack.errors import StageFailedError
from edgepack.export import handler_answers, selection
from edgepack.export.handler_answers import RECORDED_ROWS, Answers, Run
from edgepack.imported import conversion
from edgepack.imported.conversion import (
    FLOAT_FOLDER,
    GRAPHS_KEYS,
    IMPORT_LIBRARIES,
    INT8_FOLDER,
    PARITY_RUNS,
)
from edgepack.imported.examples import ExamplesStage
from edgepack.messages import message
from edgepack.packages import unpacked
from edgepack.progress import Progress
from edgepack.recipe.model import MOST_RUNS, ImportedModel, ImportedQuantize
from edgepack.sandbox import runner as sandbox
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
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
from edgepack_runtime.util.fs import user_cache

_LEAST_ROWS: Final = 4


@dataclass(frozen=True)
class Scored:
    """What the sandbox returns: the models, and scores of the examples by precision."""

    models: ExportArtifact
    scores: dict[Precision, list[float]]


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
    version = 4
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
            site = unpacked.unpacked_here(self.requirements, ctx.targets, ctx.progress, user_cache() / "packages")
        examples, made = ctx.artifact(self.examples), out / "sandbox"
        apart = self._calibration_rows(examples) if self._is_int8_tried else 0
        job = functools.partial(self.write, examples, site, apart, made)
        # A handler reads what it likes.
        found = sandbox.run(job, Scored, made, ctx.progress, stage=self.name, leaves=self._leaves)
        export = conversion.taken(found.models, made, out)
        for model in export.models:
            self._complete(out / model.folder, model.precision, examples)
            scores = found.scores.get(model.precision, [])
            if len(scores) != examples.rows - apart or not all(0 <= score <= 1 for score in scores):
                raise StageFailedError("graphs: the process of the model returned scores of other examples")
        (out / SCORES_FILE).write_text(json.dumps({"first": apart, **found.scores}) + "\n", encoding="utf-8")
        return export

    @property
    def _is_int8_tried(self) -> bool:
        return self.quantize.method == "ptq"

    @property
    def _leaves(self) -> list[str]:
        return conversion.leaves((f"{name}.onnx" for name in self.section.graphs), int8=self._is_int8_tried)

    def _complete(self, folder: Path, precision: Precision, examples: ExamplesArtifact) -> None:
        """Add to the graphs of a model folder what the handler needs."""
        shutil.copyfile(self.handler, folder / HANDLER_NAME)
        for file in self.section.files:
            shutil.copyfile(file, folder / Path(file).name)
        handler = HandlerConfig(examples.item, tuple(sorted(self.section.graphs)))
        (folder / CONFIG_NAME).write_bytes(dump(ModelConfig(CUSTOM, (), 0, precision, handler=handler)))

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

    def write(
        self, examples: ExamplesArtifact, site: Path | None, apart: int, made: Path, progress: Progress
    ) -> Scored:
        """The work of `run`, in the sandbox.

        Args:
            site: the folder of the packages that the handler imports.
            apart: number of the first examples that calibrate INT8 and are not scored.
            made: where the graphs go.
        """
        ptq = self._is_int8_tried
        with tempfile.TemporaryDirectory() as scratch:
            models = Path(scratch)
            folder, small, runs = models / FLOAT_FOLDER, models / INT8_FOLDER, models / "runs"
            folder.mkdir()
            runs.mkdir()
            sources = {
                name: conversion.write(file, folder / f"{name}.onnx", progress)
                for name, file in self.section.graphs.items()
            }
            self._complete(folder, "float32", examples)
            [found] = handler_answers.answer(
                [folder],
                examples,
                site,
                "answers of the handler",
                progress,
                runs=runs if ptq or any(sources.values()) else None,
                most_runs=MOST_RUNS if ptq else PARITY_RUNS,
                recorded_rows=apart or RECORDED_ROWS,
            )
            recorded = {name: handler_answers.read_runs(runs, name) for name in sources}
            compared = {
                name: conversion.parity(source, recorded[name][:PARITY_RUNS])
                for name, source in sources.items()
                if source is not None
            }
            if ptq:
                _write_int8(folder, recorded, small, progress)
                self._complete(small, "int8", examples)
            for name, off in compared.items():
                progress.line(f"graph {name} agrees with Paddle Inference to {off:.1e}")
            answers: dict[Precision, Answers] = {"float32": found}
            if ptq:
                both = handler_answers.answer([folder, small], examples, site, "answers of float and INT8", progress)
                answers = {"float32": both[0].after(apart), "int8": both[1].after(apart)}
            conversion.hand_over(models, made, self._leaves)
        scores = {name: list(one.scores) for name, one in answers.items()}
        row = _row("float ONNX", made / FLOAT_FOLDER, answers["float32"])
        if compared:
            row = replace(row, parity=max(compared.values()), parity_with="Paddle Inference")
        model = _model(FLOAT_FOLDER, "float32", row, made)
        if not ptq:
            return Scored(ExportArtifact(made, None, model, None, "float32", message("ship.as_imported")), scores)
        small_row = _row("INT8 ONNX", made / INT8_FOLDER, answers["int8"])
        small_model = _model(INT8_FOLDER, "int8", replace(small_row, note=message("note.calibrated", n=apart)), made)
        ships, reason = selection.choose_imported(model, small_model, self.quantize.max_drop_points)
        return Scored(ExportArtifact(made, None, model, small_model, ships.precision, reason), scores)


def _write_int8(folder: Path, runs: Mapping[str, Sequence[Run]], target: Path, progress: Progress) -> None:
    """Write the INT8 form of the graphs of a model folder."""
    from edgepack.export import imported_int8

    target.mkdir()
    for name, recorded in runs.items():
        if not recorded:
            raise StageFailedError(
                f"graphs: {name} cannot be quantized",
                why="the handler ran it for no example",
                fix="add an example that needs it, or set `quantize: {method: none}`",
            )
        progress.line(f"quantizing {name} with {counted(len(recorded), 'run')} of the examples")
        imported_int8.write(folder / f"{name}.onnx", recorded, target / f"{name}.onnx")


def _model(folder: str, precision: Precision, row: LedgerRow, made: Path) -> ModelFile:
    return ModelFile(folder, precision, weight_bytes(made / folder), row, {row.score.metric: row.score})


def _row(stage: str, folder: Path, found: Answers) -> LedgerRow:
    return LedgerRow(
        stage,
        found.score,
        model_mib=mebibytes(weight_bytes(folder)),
        p50_ms=found.p50_ms,
        p95_ms=found.p95_ms,
        mean_ms=found.mean_ms,
    )
