"""Export the student: Paddle static graph, float ONNX, INT8 ONNX; check parity on text; choose what ships."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import onnx

from edgepack import choice, engines, int8
from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    LedgerRow,
    ModelArtifact,
    Precision,
    Row,
    ScalesArtifact,
    mebibytes,
)
from edgepack.choice import Exported, OfEngine
from edgepack.engines import Engine
from edgepack.errors import StageFailedError
from edgepack.graph import parity
from edgepack.graph.compose import OUTPUT, Layout, compose
from edgepack.graph.encoder import Encoder
from edgepack.graph.fold import fold_constants
from edgepack.graph.names import name_by_position
from edgepack.graph.patterns import Unrecognised
from edgepack.graph.quantize import with_ranges
from edgepack.graph.rewrite import rewrite
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.quantization import Int8Choice, Quantization
from edgepack.recipe.model import EngineChoice, Quantize
from edgepack.reduced import NarrowedArtifact, PrunedArtifact
from edgepack.targets import measure
from edgepack_runtime import model_config
from edgepack_runtime.predictor import Predictor

VERSION = 7
Float = npt.NDArray[np.float32]
PARITY_ROWS = 64
FLOAT_TOLERANCE = 1e-4  # logits; float32 kernels of two engines differ by some 1e-6 a layer
FLOAT_FOLDER, INT8_FOLDER, STATIC_FOLDER = "onnx-float", "onnx-int8", "paddle"


def run(
    section: Quantize,
    engine: EngineChoice,
    target: str,
    data: DataArtifact,
    student: ModelArtifact,
    scales: ScalesArtifact,
    out: Path,
    progress: Progress,
) -> ExportArtifact:
    """Write `paddle/`, `onnx-float/` and `onnx-int8/`; every figure after the static graph is the runtime's own.

    Of several engines the first decides how INT8 comes to be, and the others get the same model in their own form, with
    more of it in float where they lose more; `target` is one that the model is for.
    """
    environment.start(progress)
    rows = data.read("dev")[:PARITY_ROWS]
    static_logits, static = _static_graph(student, data, rows, out / STATIC_FOLDER)
    progress.line(f"static graph agrees with dygraph to {static.max_abs:.1e} on {static.n} texts")
    first, *others = (_Writer(one, student, data, section.reduced_range) for one in engines.wanted(engine))
    encoder, graph, note = _rewritten(_float_onnx(out / STATIC_FOLDER), first.layout)
    if note:
        progress.line(f"the exported graph {note}")
    first.write(out / FLOAT_FOLDER, graph, "float32", as_laid_out=encoder is not None)
    float_model = Predictor(out / FLOAT_FOLDER)
    float_logits = measure.logits(float_model, rows)
    exported = parity.require(static_logits, float_logits, FLOAT_TOLERANCE, "Paddle static graph and float ONNX")
    progress.line(f"float ONNX agrees with the static graph to {exported.max_abs:.1e}, tokenizer included")

    float_file = Exported("float ONNX", out / FLOAT_FOLDER, "float32", exported, "static graph")
    several = [OfEngine(first.engine, (float_file,), None)]
    small, made = None, None
    if scales.ways and encoder is not None:
        ways = [(way, _ranged(way, section, encoder, first, scales)) for way in scales.ways]
        trials = _trials(float_model, first, out, progress)
        small, made = int8.choose(ways, trials, section.max_drop_points, progress)
        int8_file = _int8_file("INT8 ONNX", out / INT8_FOLDER, first, small, made, rows, float_logits)
        apart = int8_file.parity
        progress.line(f"INT8 ONNX is {apart.max_abs:.3f} from float at most; {apart.flips} labels flipped")
        several = [OfEngine(first.engine, (float_file, int8_file), made)]
    if encoder is not None:
        several += [_for_another(other, encoder, small, made, rows, float_logits, out, progress) for other in others]
    chosen = choice.of_engines(several, section, target, data, progress)
    return ExportArtifact(
        out,
        _static_row(out / STATIC_FOLDER, student, static),
        chosen.float_model,
        chosen.int8_model,
        chosen.shipped,
        chosen.reason or (f"the exported graph {note}" if note else "quantize.method is none"),
        chosen.made,
        chosen.engine.name,
        chosen.others,
    )


@dataclass(frozen=True)
class _Writer:
    """Writes models of one student as the runtime loads them, for one engine."""

    engine: Engine
    student: ModelArtifact
    data: DataArtifact
    reduced: bool  # weights of 7 bits, where they are INT8

    @property
    def layout(self) -> Layout:
        return self.engine.layout(self.data.task, self.student.max_length)

    def write_float(self, folder: Path, encoder: Encoder) -> None:
        self.write(folder, compose(encoder, self.layout), "float32")

    def write_int8(self, folder: Path, encoder: Encoder) -> None:
        self.write(folder, compose(encoder, self.layout, self.engine.int8(reduced=self.reduced)), "int8")

    def write(self, folder: Path, graph: onnx.ModelProto, precision: Precision, *, as_laid_out: bool = True) -> None:
        """A folder as the runtime loads it. What is not `as_laid_out` here is as it was exported, and hides padding."""
        from edgepack.paddle_ml.tokens import config_of

        config = model_config.ModelConfig(
            task=self.data.task,
            labels=self.student.labels,
            max_length=self.student.max_length,
            precision=precision,
            multi_label=self.data.multi_label,
            hides_padding=not (as_laid_out and self.layout.unpadded),
            tokenizer=config_of(self.student.folder),
            engine=self.engine.config,
        )
        folder.mkdir()
        onnx.save(graph, str(folder / "model.onnx"))
        shutil.copy(self.student.folder / "vocab.txt", folder)
        (folder / "model.json").write_bytes(model_config.dump(config))


def _for_another(
    other: _Writer,
    encoder: Encoder,
    small: Encoder | None,
    made: Int8Choice | None,
    rows: Sequence[Row],
    float_logits: Sequence[Float],
    out: Path,
    progress: Progress,
) -> OfEngine:
    """What was made for the first engine, float and, if there is one, the INT8 `small`, written for another."""
    title = other.engine.title
    folder = out / f"{FLOAT_FOLDER}-{other.engine.name}"
    other.write_float(folder, encoder)
    float_model = Predictor(folder)
    found = measure.logits(float_model, rows)
    close = parity.require(float_logits, found, FLOAT_TOLERANCE, f"float ONNX and that for {title}")
    float_file = Exported(f"float ONNX ({title})", folder, "float32", close, "float ONNX")
    if small is None or made is None:
        return OfEngine(other.engine, (float_file,), None)
    small, made = int8.elsewhere(small, made, _trials(float_model, other, out, progress), progress)
    folder = out / f"{INT8_FOLDER}-{other.engine.name}"
    int8_file = _int8_file(f"INT8 ONNX ({title})", folder, other, small, made, rows, float_logits)
    return OfEngine(other.engine, (float_file, int8_file), made)


def _int8_file(
    name: str,
    folder: Path,
    writer: _Writer,
    small: Encoder,
    made: Int8Choice,
    rows: Sequence[Row],
    float_logits: Sequence[Float],
) -> Exported:
    writer.write_int8(folder, small)
    close = parity.compare(float_logits, measure.logits(Predictor(folder), rows))
    return Exported(name, folder, "int8", close, "float ONNX", choice.note(made))


def _static_row(folder: Path, student: ModelArtifact, static: parity.Parity) -> LedgerRow:
    return LedgerRow(
        "static graph",
        student.test_score,
        model_mib=mebibytes(sum(path.stat().st_size for path in folder.glob("model.*"))),
        parity=static.max_abs,
        parity_with={NarrowedArtifact: "narrowed", PrunedArtifact: "pruned"}.get(type(student), "student"),
        note="the student's weights, not measured again",
    )


def _trials(float_model: Predictor, writer: _Writer, out: Path, progress: Progress) -> int8.Trials:
    """Of models as `writer` writes them, against `float_model`."""

    def opened(encoder: Encoder) -> Predictor:
        with TemporaryDirectory(prefix=".trial-", dir=out) as scratch:
            writer.write_int8(Path(scratch) / "model", encoder)
            return Predictor(Path(scratch) / "model")

    return int8.Trials(float_model, opened, writer.data, progress)


def _ranged(way: Quantization, section: Quantize, encoder: Encoder, writer: _Writer, scales: ScalesArtifact) -> Encoder:
    """With the ranges of `way`, the float student's weights or those that were trained for it."""
    if way.weights is not None:
        encoder = _relearnt(way, scales.folder / way.weights, writer)
    return with_ranges(encoder, way.linears, embeddings=section.embeddings == "int8")


def _relearnt(way: Quantization, folder: Path, writer: _Writer) -> Encoder:
    """The encoder of the weights in `folder`.

    Raises:
        StageFailedError: its graph is not understood.
    """
    trained, data = replace(writer.student, folder=folder), writer.data
    with TemporaryDirectory() as scratch:
        static = Path(scratch) / STATIC_FOLDER
        _static_graph(trained, data, data.read("dev")[:PARITY_ROWS], static)
        found, _, note = _rewritten(_float_onnx(static), writer.layout)
    if found is None:
        raise StageFailedError(f"export: the graph of the weights that were trained for {way.name} {note}")
    return found


def _static_graph(
    student: ModelArtifact, data: DataArtifact, rows: Sequence[Row], folder: Path
) -> tuple[list[Float], parity.Parity]:
    """Save the Paddle static graph and compare it with the dygraph model, text by text."""
    from edgepack.paddle_ml import export
    from edgepack.paddle_ml.fit import reopen

    classifier = reopen(student, data)
    encoded = classifier.encode(rows)
    reference = [export.run_dygraph(classifier, row) for row in encoded]
    folder.mkdir()
    export.static_graph(classifier, folder)
    shutil.copy(student.folder / "vocab.txt", folder)
    loaded = export.StaticGraph(folder)
    saved = [loaded.run(row) for row in encoded]
    return saved, parity.require(reference, saved, FLOAT_TOLERANCE, "Paddle dygraph and static graph")


def _float_onnx(static: Path) -> onnx.ModelProto:
    """What paddle2onnx makes of a static graph, with its constants folded."""
    from edgepack.paddle_ml import export

    raw = static.parent / "paddle2onnx.onnx"
    export.float_onnx(static, raw)
    graph = fold_constants(onnx.load(str(raw)))
    raw.unlink()
    name_by_position(graph, OUTPUT)
    return graph


def _rewritten(graph: onnx.ModelProto, layout: Layout) -> tuple[Encoder | None, onnx.ModelProto, str]:
    """The encoder and its graph in `layout`; or no encoder, the graph as it is, and what is to be said of it."""
    try:
        return *rewrite(graph, layout), ""
    except Unrecognised as reason:
        return None, graph, f"is not rewritten, and has no INT8 form: {reason}"
