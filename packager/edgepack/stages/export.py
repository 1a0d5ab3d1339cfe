"""Stage `export`: write Paddle static graph, float ONNX and a smaller ONNX, check parity, select what ships."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx

from edgepack import evaluation
from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    Int8Choice,
    LedgerRow,
    LoadedArtifact,
    ModelArtifact,
    Precision,
    Quantization,
    Row,
    ScalesArtifact,
    mebibytes,
)
from edgepack.errors import StageFailedError
from edgepack.export import int8_search, selection, target_variants
from edgepack.export.int8_search import Trials
from edgepack.export.model_folder import ModelWriter
from edgepack.export.selection import SHORT, Caveats, Exported
from edgepack.export.target_variants import Variant, VariantSource
from edgepack.messages import joined, message
from edgepack.onnx_graph import parity
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.graph_writer import OUTPUT, Layout
from edgepack.onnx_graph.int8_ranges import with_ranges
from edgepack.onnx_graph.recognise import IDS, TYPES, Unrecognised
from edgepack.onnx_graph.rewrite import rewrite
from edgepack.onnx_graph.utils import Array, fold_constants, name_by_position, run_each
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize
from edgepack.stages import keys
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.stage import TRAINING, Context, Input, Stage
from edgepack.training import environment
from edgepack.util.text import counted
from edgepack_runtime.inference.predictor import Predictor

Float = npt.NDArray[np.float32]
_Saved = tuple[Mapping[str, Array], Float]  # the inputs of a text, and its logits in Paddle
PARITY_ROWS = 64
FLOAT_TOLERANCE = 1e-4  # logits; float32 kernels of Paddle and ONNX Runtime differ by some 1e-6 a layer
STATIC_FOLDER = "paddle"
FOLDERS: Final[Mapping[Precision, str]] = {"float32": "onnx-float", "float16": "onnx-fp16", "int8": "onnx-int8"}


@dataclass(frozen=True)
class ExportStage(Stage[ExportArtifact]):
    """Writes `paddle/`, `onnx-float/` and a smaller form. The runtime measures every figure after the static graph.

    Attributes:
        targets: their names; some take a variant of the shipped model.
    """

    section: Quantize
    targets: tuple[str, ...]
    rows: Stage[DataArtifact]
    student: Stage[ModelArtifact]
    scales: QuantizeStage

    name = "export"
    version = 14
    kind = ExportArtifact
    libraries = (*TRAINING, "paddle2onnx", "onnx", "onnxruntime")
    measures = True
    recipe_keys = {"quantize": "quantize", "differing": "targets"}  # noqa: RUF012 - never changed

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.student, self.scales)

    def decides(self, ctx: Context) -> Any:
        differing = {variant.name: names for variant, names in self._variants(ctx).items()}
        return {"quantize": keys.dump(self.section), "differing": differing}

    def inputs(self, ctx: Context) -> list[Input]:
        model, scales = keys.model(ctx[self.student]), keys.scales(ctx[self.scales])
        return [*keys.labelled(ctx[self.rows]), *model, *scales, *keys.runtime()]

    def _variants(self, ctx: Context) -> Mapping[Variant, tuple[str, ...]]:
        """Variants of the shipped model, with the targets that take them."""
        return target_variants.wanted(map(ctx.targets.profile, self.targets), self.section)

    def run(self, ctx: Context, out: Path) -> ExportArtifact:
        section, progress = self.section, ctx.progress
        data, student = ctx.artifact(self.rows), ctx.artifact(self.student)
        environment.start(progress)
        from edgepack.training.models.tokenizer_files import config_of

        rows = data.read("dev")[:PARITY_ROWS]
        saved, static = _static_graph(student, data, rows, out / STATIC_FOLDER)
        progress.line(f"static graph agrees with dygraph to {static.max_abs:.1e} on {counted(static.n, 'text')}")
        writer = ModelWriter(student, data, config_of(student.folder), section.reduced_range)
        encoder, graph, note = _rewritten(_float_onnx(out / STATIC_FOLDER, saved), writer.layout)
        about_graph = message("ship.graph", why=note) if note else ""
        if note:
            progress.line(about_graph)
        float_folder = out / FOLDERS["float32"]
        writer.write(float_folder, graph, "float32", as_laid_out=encoder is not None)
        float_model = Predictor(float_folder)
        float_logits = evaluation.logits(float_model, rows)
        exported = parity.require(
            [logits for _, logits in saved], float_logits, FLOAT_TOLERANCE, "Paddle static graph and float ONNX"
        )
        progress.line(f"float ONNX agrees with the static graph to {exported.max_abs:.1e}, tokenizer included")

        float_file = Exported("float ONNX", float_folder, "float32", exported, "static graph")
        small = small_file = None
        if encoder is not None:
            small = _small(section, encoder, ctx.artifact(self.scales), float_model, writer, out, progress)
        if small is not None:
            small_file = _exported(small, out / FOLDERS[small.precision], writer, rows, float_logits, progress)
        chosen = selection.measure_and_choose(
            float_file, small_file, small.caveats if small else Caveats(), data, progress
        )
        source = VariantSource(
            writer=writer,
            float_folder=float_folder,
            graph=graph,
            encoder=encoder,
            ranged=small.encoder if small is not None else None,
            made=small.int8 if small is not None else None,
            shipped=chosen.ships.precision,
        )
        made = (
            target_variants.make(variant, targets, source, section, rows, float_logits, out, progress)
            for variant, targets in self._variants(ctx).items()
        )
        return ExportArtifact(
            out,
            _static_row(out / STATIC_FOLDER, student, student.row_of(self.student.name), static),
            chosen.float_model,
            chosen.small_model,
            chosen.ships.precision,
            joined(about_graph, chosen.reason) or message("ship.no_method"),
            source.made,
            tuple(one for one in made if one is not None),
        )


@dataclass(frozen=True)
class _Small:
    """A smaller form of the student: `encoder` in `precision`. `int8` has the trials that chose it."""

    precision: Precision
    encoder: Encoder
    caveats: Caveats
    note: str
    int8: Int8Choice | None = None


def _exported(
    small: _Small,
    folder: Path,
    writer: ModelWriter,
    rows: Sequence[Row],
    float_logits: Sequence[Float],
    progress: Progress,
) -> Exported:
    """Write `small` into `folder` and compare its logits with those of float.

    Raises:
        StageFailedError: a logit is not a finite number.
    """
    name = f"{SHORT[small.precision]} ONNX"
    writer.write_as(small.precision, folder, small.encoder)
    found = evaluation.logits(Predictor(folder), rows)
    close = parity.require(float_logits, found, math.inf, f"float ONNX and {name}")
    flipped = f"; {counted(close.flips, 'label')} flipped" if len(float_logits[0].ravel()) > 1 else ""
    progress.line(f"{name} is {close.max_abs:.3f} from float at most{flipped}")
    return Exported(name, folder, small.precision, close, "float ONNX", small.note)


def _static_row(folder: Path, student: ModelArtifact, name: str, static: parity.Parity) -> LedgerRow:
    return LedgerRow(
        "static graph",
        student.test_score,
        model_mib=mebibytes(sum(path.stat().st_size for path in folder.glob("model.*"))),
        parity=static.max_abs,
        parity_with=name,
        note=message("note.static_model" if isinstance(student, LoadedArtifact) else "note.static"),
    )


def _small(
    section: Quantize,
    encoder: Encoder,
    scales: ScalesArtifact,
    float_model: Predictor,
    writer: ModelWriter,
    out: Path,
    progress: Progress,
) -> _Small | None:
    """The smaller model of `quantize.method`; None with `none`.

    For INT8, the best quantization on dev rows, with as many parts in float as `max_drop_points` needs.
    """
    if section.method == "none":
        return None
    if section.method == "fp16":
        return _float16(section, encoder, Trials(float_model, writer.trial("float16", out), writer.data, progress))
    methods = [(one, _ranged(one, section, encoder, writer, scales)) for one in scales.ways]
    trials = Trials(float_model, writer.trial("int8", out), writer.data, progress)
    return _int8(section, *int8_search.choose(methods, trials, section.max_drop_points, progress))


def _float16(section: Quantize, encoder: Encoder, trials: Trials) -> _Small:
    trial = trials.trial("float16", encoder)
    caveats = selection.caveats_of_float16(trial, trials.may_lose(section.max_drop_points))
    return _Small("float16", encoder, caveats, selection.describe_drop(trial.drop_points, len(trials.rows)))


def _int8(section: Quantize, encoder: Encoder, made: Int8Choice) -> _Small:
    return _Small(
        "int8",
        encoder,
        selection.caveats_of_int8(section, made),
        selection.describe_choice(made, reduced=section.reduced_range),
        made,
    )


def _ranged(
    method: Quantization, section: Quantize, encoder: Encoder, writer: ModelWriter, scales: ScalesArtifact
) -> Encoder:
    """The encoder with the ranges of `method`, and with the weights that QAT trained if there are any."""
    if method.weights is not None:
        encoder = _qat_encoder(method, scales.folder / method.weights, writer)
    return with_ranges(encoder, method.linears, embeddings=section.embeddings == "int8")


def _qat_encoder(method: Quantization, folder: Path, writer: ModelWriter) -> Encoder:
    """The encoder of the weights in `folder`.

    Raises:
        StageFailedError: its graph is not recognised.
    """
    trained, data = replace(writer.student, folder=folder), writer.data
    with TemporaryDirectory() as scratch:
        static = Path(scratch) / STATIC_FOLDER
        saved, _ = _static_graph(trained, data, data.read("dev")[:PARITY_ROWS], static)
        found, _, note = _rewritten(_float_onnx(static, saved), writer.layout)
    if found is None:
        raise StageFailedError(f"export: the graph of the weights that were trained for {method.name} {note}")
    return found


def _static_graph(
    student: ModelArtifact, data: DataArtifact, rows: Sequence[Row], folder: Path
) -> tuple[list[_Saved], parity.Parity]:
    """Save the Paddle static graph and compare its logits with the dygraph model's, text by text."""
    from edgepack.training.finetune import reopen
    from edgepack.training.models import export

    classifier = reopen(student, data)
    encoded = classifier.encode(rows)
    reference = [export.run_dygraph(classifier, row) for row in encoded]
    folder.mkdir()
    export.static_graph(classifier, folder)
    shutil.copy(student.folder / "vocab.txt", folder)
    loaded = export.StaticGraph(folder)
    saved = [loaded.run(row) for row in encoded]
    close = parity.require(reference, saved, FLOAT_TOLERANCE, "Paddle dygraph and static graph")
    inputs = [
        {name: np.array([list(tokens)], np.int64) for name, tokens in ((IDS, row.ids), (TYPES, row.types))}
        for row in encoded
    ]
    return list(zip(inputs, saved, strict=True)), close


def _float_onnx(static: Path, saved: Sequence[_Saved]) -> onnx.ModelProto:
    """The static graph as converted by paddle2onnx, with folded constants, and the logits that were `saved`.

    Raises:
        StageFailedError: it cannot be converted, or has other logits.
    """
    from edgepack.training.models import export

    raw = static.parent / "paddle2onnx.onnx"
    export.float_onnx(static, raw)
    graph = fold_constants(onnx.load(str(raw)))
    raw.unlink()
    name_by_position(graph, OUTPUT)
    require_same(graph, saved)
    return graph


def require_same(graph: onnx.ModelProto, saved: Sequence[_Saved]) -> None:
    """Compare a converted graph with Paddle: paddle2onnx was seen to leave a LayerNorm's scale and bias out.

    Raises:
        StageFailedError: a logit differs by more than `FLOAT_TOLERANCE`.
    """
    found = [logits for [logits] in run_each(graph, [OUTPUT], (inputs for inputs, _ in saved))]
    parity.require([logits for _, logits in saved], found, FLOAT_TOLERANCE, "Paddle static graph and paddle2onnx's")


def _rewritten(graph: onnx.ModelProto, layout: Layout) -> tuple[Encoder | None, onnx.ModelProto, str]:
    """The encoder, its graph in `layout` and ""; or None, the graph unchanged, and the reason."""
    try:
        return *rewrite(graph, layout), ""
    except Unrecognised as reason:
        return None, graph, message("ship.not_rewritten", reason=reason.args[0])
