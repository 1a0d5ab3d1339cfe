"""Export the student: Paddle static graph, float ONNX, INT8 ONNX; check parity on text; choose what ships."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    PrunedArtifact,
    Row,
    ScalesArtifact,
    mebibytes,
)
from edgepack.choice import Exported
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
from edgepack.targets import measure
from edgepack_runtime import model_config
from edgepack_runtime.predictor import Predictor

VERSION = 6
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

    Of several engines the first decides how INT8 comes to be, and the others get the same model in their own form;
    `target` is one that the model is for.
    """
    environment.start(progress)
    rows = data.read("dev")[:PARITY_ROWS]
    static_logits, static = _static_graph(student, data, rows, out / STATIC_FOLDER)
    progress.line(f"static graph agrees with dygraph to {static.max_abs:.1e} on {static.n} texts")

    first, *others = engines.wanted(engine)
    layout = first.layout(data.task, student.max_length)
    encoder, graph, note = _rewritten(_float_onnx(out / STATIC_FOLDER), layout)
    if note:
        progress.line(f"the exported graph {note}")
    config = _config(student, data, first.config, hides_padding=encoder is None or not layout.unpadded)
    _write_model(out / FLOAT_FOLDER, graph, student, config)
    float_model = Predictor(out / FLOAT_FOLDER)
    float_logits = measure.logits(float_model, rows)
    exported = parity.require(static_logits, float_logits, FLOAT_TOLERANCE, "Paddle static graph and float ONNX")
    progress.line(f"float ONNX agrees with the static graph to {exported.max_abs:.1e}, tokenizer included")

    files = [Exported("float ONNX", out / FLOAT_FOLDER, "float32", exported, "static graph")]
    int8_choice: Int8Choice | None = None
    small: Encoder | None = None
    if scales.ways and encoder is not None:

        def write(folder: Path, found: Encoder) -> None:
            _write_model(folder, compose(found, layout, first.int8()), student, replace(config, precision="int8"))

        ways = [
            (way, with_ranges(source, way.linears, embeddings=section.embeddings == "int8"))
            for way in scales.ways
            for source in [_weights_of(way, encoder, student, data, scales, layout)]
        ]
        small, int8_choice = _int8(ways, float_model, write, section, data, out / INT8_FOLDER, progress)
        quantized = parity.compare(float_logits, measure.logits(Predictor(out / INT8_FOLDER), rows))
        progress.line(f"INT8 ONNX is {quantized.max_abs:.3f} from float at most; {quantized.flips} labels flipped")
        told = choice.note(int8_choice)
        files.append(Exported("INT8 ONNX", out / INT8_FOLDER, "int8", quantized, "float ONNX", told))
    of_engines = [(first, files)]
    for other in others:
        found = [*([(FLOAT_FOLDER, encoder)] if encoder else []), *([(INT8_FOLDER, small)] if small else [])]
        of_engines.append((other, [_as_for(other, *one, config, student, rows, float_logits, out) for one in found]))
    against = choice.hindrances(section, int8_choice) if int8_choice else []
    chosen = choice.of_engines(of_engines, against, target, data, progress)
    reason = chosen.reason or (f"the exported graph {note}" if note else "quantize.method is none")
    return ExportArtifact(
        out,
        _static_row(out / STATIC_FOLDER, student, static),
        chosen.float_model,
        chosen.int8_model,
        chosen.shipped,
        reason,
        int8_choice,
        chosen.engine.name,
        chosen.others,
    )


def _as_for(
    engine: Engine,
    name: str,
    encoder: Encoder,
    config: model_config.ModelConfig,
    student: ModelArtifact,
    rows: Sequence[Row],
    float_logits: Sequence[Float],
    out: Path,
) -> Exported:
    """The model of the folder `name`, written for another engine: what it computes was settled for the first."""
    folder = out / f"{name}-{engine.name}"
    layout = engine.layout(config.task, student.max_length)
    int8 = name == INT8_FOLDER
    own = replace(config, engine=engine.config, hides_padding=not layout.unpadded)
    own = replace(own, precision="int8") if int8 else own
    _write_model(folder, compose(encoder, layout, engine.int8() if int8 else None), student, own)
    found = measure.logits(Predictor(folder), rows)
    if int8:
        close = parity.compare(float_logits, found)
        return Exported(f"INT8 ONNX ({engine.title})", folder, "int8", close, "float ONNX")
    close = parity.require(float_logits, found, FLOAT_TOLERANCE, f"float ONNX and that for {engine.title}")
    return Exported(f"float ONNX ({engine.title})", folder, "float32", close, "float ONNX")


def _static_row(folder: Path, student: ModelArtifact, static: parity.Parity) -> LedgerRow:
    return LedgerRow(
        "static graph",
        student.test_score,
        model_mib=mebibytes(sum(path.stat().st_size for path in folder.glob("model.*"))),
        parity=static.max_abs,
        parity_with="pruned" if isinstance(student, PrunedArtifact) else "student",
        note="the student's weights, not measured again",
    )


def _int8(
    ways: Sequence[tuple[Quantization, Encoder]],
    float_model: Predictor,
    write: Callable[[Path, Encoder], None],
    section: Quantize,
    data: DataArtifact,
    folder: Path,
    progress: Progress,
) -> tuple[Encoder, Int8Choice]:
    """Write the INT8 model into `folder`: of all `ways`, and with as many parts in float as it takes."""

    def opened(encoder: Encoder) -> Predictor:
        with TemporaryDirectory(prefix=".trial-", dir=folder.parent) as scratch:
            write(Path(scratch) / "model", encoder)
            return Predictor(Path(scratch) / "model")

    trials = int8.Trials(float_model, opened, data, progress)
    encoder, made = int8.choose(ways, trials, section.max_drop_points, progress)
    write(folder, encoder)
    return encoder, made


def _weights_of(
    way: Quantization,
    encoder: Encoder,
    student: ModelArtifact,
    data: DataArtifact,
    scales: ScalesArtifact,
    layout: Layout,
) -> Encoder:
    """The float student's, or those that were trained for this way."""
    if way.weights is None:
        return encoder
    trained = replace(student, folder=scales.folder / way.weights)
    with TemporaryDirectory() as scratch:
        static = Path(scratch) / STATIC_FOLDER
        _static_graph(trained, data, data.read("dev")[:PARITY_ROWS], static)
        found, _, note = _rewritten(_float_onnx(static), layout)
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


def _config(
    student: ModelArtifact, data: DataArtifact, engine: model_config.EngineConfig, *, hides_padding: bool
) -> model_config.ModelConfig:
    """What the runtime has to know of the float model."""
    from edgepack.paddle_ml.tokens import config_of

    return model_config.ModelConfig(
        task=data.task,
        labels=student.labels,
        max_length=student.max_length,
        precision="float32",
        multi_label=data.multi_label,
        hides_padding=hides_padding,
        tokenizer=config_of(student.folder),
        engine=engine,
    )


def _write_model(
    folder: Path, graph: onnx.ModelProto, student: ModelArtifact, config: model_config.ModelConfig
) -> None:
    """A folder as the runtime loads it."""
    folder.mkdir()
    onnx.save(graph, str(folder / "model.onnx"))
    shutil.copy(student.folder / "vocab.txt", folder)
    (folder / "model.json").write_bytes(model_config.dump(config))
