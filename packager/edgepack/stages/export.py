"""Export the student: Paddle static graph, float ONNX, INT8 ONNX; check parity on text; choose what ships."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from edgepack import scores
from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    LedgerRow,
    ModelArtifact,
    ModelFile,
    Precision,
    Row,
    ScalesArtifact,
    Score,
    mebibytes,
)
from edgepack.graph import parity
from edgepack.graph.compose import OUTPUT, Layout, compose, fastest
from edgepack.graph.encoder import Encoder
from edgepack.graph.fold import fold_constants
from edgepack.graph.forms import OrtCpuForm
from edgepack.graph.names import name_by_position
from edgepack.graph.patterns import Unrecognised
from edgepack.graph.quantize import with_ranges
from edgepack.graph.rewrite import rewrite
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize
from edgepack.targets import measure
from edgepack_runtime import model_config
from edgepack_runtime.predictor import Predictor

VERSION = 4
Float = npt.NDArray[np.float32]
PARITY_ROWS = 64
TIMED_TEXTS = 200
FLOAT_TOLERANCE = 1e-4  # logits; float32 kernels of two engines differ by some 1e-6 a layer
LEAST_GAIN = 0.10  # INT8 ships when it is at least this much smaller and faster than the float file
# ONNX Runtime's fused kernel takes 537 us a run where the parts it replaces take about 120 (4 layers x 312, x86).
_SLOWER_FUSIONS = ("SkipLayerNormFusion",)
TEXTS_FILE = "texts.txt"  # what `edgert bench` measures with when it is given the folders beside it
FLOAT_FOLDER, INT8_FOLDER, STATIC_FOLDER = "onnx-float", "onnx-int8", "paddle"


def run(
    section: Quantize,
    data: DataArtifact,
    student: ModelArtifact,
    scales: ScalesArtifact,
    out: Path,
    progress: Progress,
) -> ExportArtifact:
    """Write `paddle/`, `onnx-float/` and `onnx-int8/`; every figure after the static graph is the runtime's own."""
    environment.start(progress)
    rows = data.read("dev")[:PARITY_ROWS]
    static_logits, static = _static_graph(student, data, rows, out / STATIC_FOLDER)
    progress.line(f"static graph agrees with dygraph to {static.max_abs:.1e} on {static.n} texts")

    layout = fastest(pairs=data.task == "text-pair-classification")
    encoder, graph, note = _rewritten(_float_onnx(out), layout)
    if note:
        progress.line(f"the exported graph {note}")
    config = _config(student, data, hides_padding=encoder is None or not layout.unpadded)
    _write_model(out / FLOAT_FOLDER, graph, student, config)
    float_logits = _logits(out / FLOAT_FOLDER, rows)
    exported = parity.require(static_logits, float_logits, FLOAT_TOLERANCE, "Paddle static graph and float ONNX")
    progress.line(f"float ONNX agrees with the static graph to {exported.max_abs:.1e}, tokenizer included")

    quantized: parity.Parity | None = None
    if scales.linears and encoder is not None:
        ranged = with_ranges(encoder, scales.linears, embeddings=section.embeddings == "int8")
        small = compose(ranged, layout, OrtCpuForm())
        _write_model(out / INT8_FOLDER, small, student, replace(config, precision="int8"))
        quantized = parity.compare(float_logits, _logits(out / INT8_FOLDER, rows))
        progress.line(f"INT8 ONNX is {quantized.max_abs:.3f} from float at most; {quantized.flips} labels flipped")
    return _measured(out, data, student, static, exported, quantized, note, progress)


def _logits(folder: Path, rows: Sequence[Row]) -> list[Float]:
    """The runtime's logits of each row by itself."""
    predictor = Predictor(folder)
    return [predictor.logits([row.item]) for row in rows]


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


def _float_onnx(out: Path) -> onnx.ModelProto:
    from edgepack.paddle_ml import export

    raw = out / "paddle2onnx.onnx"
    export.float_onnx(out / STATIC_FOLDER, raw)
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


def _config(student: ModelArtifact, data: DataArtifact, *, hides_padding: bool) -> model_config.ModelConfig:
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
        engine=model_config.EngineConfig(disabled_optimizers=_SLOWER_FUSIONS),
    )


def _write_model(
    folder: Path, graph: onnx.ModelProto, student: ModelArtifact, config: model_config.ModelConfig
) -> None:
    """A folder as the runtime loads it."""
    folder.mkdir()
    onnx.save(graph, str(folder / "model.onnx"))
    shutil.copy(student.folder / "vocab.txt", folder)
    (folder / "model.json").write_bytes(model_config.dump(config))


def _measured(
    out: Path,
    data: DataArtifact,
    student: ModelArtifact,
    static: parity.Parity,
    exported: parity.Parity,
    quantized: parity.Parity | None,
    note: str,
    progress: Progress,
) -> ExportArtifact:
    """Scores on test and latency side by side, by the runtime on the written files; then the choice."""
    test, metric = data.read("test"), scores.metric_of(data)
    folders = [out / FLOAT_FOLDER] + ([out / INT8_FOLDER] if quantized else [])
    texts = out / TEXTS_FILE
    texts.write_text("".join(map(_line, test[:TIMED_TEXTS])), encoding="utf-8")
    latencies = measure.latency(folders, texts, progress)
    static_row = LedgerRow(
        "static graph",
        student.test_score,
        model_mib=mebibytes(sum(path.stat().st_size for path in (out / STATIC_FOLDER).glob("model.*"))),
        parity=static.max_abs,
        parity_with="student",
        note="the student's weights, not measured again",
    )
    measured = [measure.score(folder, test, metric, progress) for folder in folders]
    float_model = _model_file(
        "float ONNX", FLOAT_FOLDER, "float32", out, measured[0], latencies[0], exported, "static graph"
    )
    if quantized is None:
        reason = f"the exported graph {note}" if note else "quantize.method is none"
        return ExportArtifact(out, static_row, float_model, None, "float32", reason)
    int8_model = _model_file("INT8 ONNX", INT8_FOLDER, "int8", out, measured[1], latencies[1], quantized, "float ONNX")
    shipped, reason = choose(float_model, int8_model)
    progress.line(reason)
    return ExportArtifact(out, static_row, float_model, int8_model, shipped, reason)


def _line(row: Row) -> str:
    """A row as the runtime reads it from a line: the texts of a pair stand on both sides of a tab."""
    return "\t".join(" ".join(text.split()) for text in (row.text, row.text_pair) if text is not None) + "\n"


def choose(float_model: ModelFile, int8_model: ModelFile) -> tuple[Precision, str]:
    """INT8 ships only where it pays: at least `LEAST_GAIN` smaller and faster than the float file."""
    size = int8_model.onnx_bytes / float_model.onnx_bytes
    assert int8_model.ledger.p50_ms is not None and float_model.ledger.p50_ms is not None
    speed = int8_model.ledger.p50_ms / float_model.ledger.p50_ms
    figures = f"INT8 has {size:.2f} x the bytes and {speed:.2f} x the p50 of float"
    if max(size, speed) <= 1 - LEAST_GAIN:
        return "int8", f"{figures}: INT8 ships"
    return "float32", f"{figures}; it must have at most {1 - LEAST_GAIN:.2f} x of both: float ships"


def _model_file(
    name: str,
    folder: str,
    precision: Precision,
    out: Path,
    score: Score,
    timing: measure.Latency,
    close: parity.Parity,
    before: str,
) -> ModelFile:
    size = (out / folder / "model.onnx").stat().st_size
    row = LedgerRow(
        name,
        score,
        model_mib=mebibytes(size),
        p50_ms=timing.p50_ms,
        p95_ms=timing.p95_ms,
        parity=close.max_abs,
        parity_with=before,
        note=f"{close.flips} of {close.n} answers differ" if close.flips else "",
    )
    return ModelFile(folder, precision, size, row)
