"""Stage `graphs` of an imported classifier: its model folder for the runtime, scored and timed on the test rows."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, ExportArtifact, Row
from edgepack.errors import StageFailedError
from edgepack.export import selection
from edgepack.export.handler_answers import Run
from edgepack.export.model_folder import ON_CPU, finds_range
from edgepack.export.selection import SHORT, Exported
from edgepack.imported import conversion
from edgepack.imported.conversion import (
    FLOAT_FOLDER,
    GRAPHS_KEYS,
    IMPORT_LIBRARIES,
    INT8_FOLDER,
    PARITY_RUNS,
)
from edgepack.imported.rows import ImportedRowsStage
from edgepack.messages import message
from edgepack.onnx_graph import parity
from edgepack.onnx_graph.graph_writer import OUTPUT, Layout, fastest
from edgepack.onnx_graph.imported_classifier import ImportedClassifier, precision_of
from edgepack.onnx_graph.recognise import IDS, TYPES, Unrecognised
from edgepack.onnx_graph.rewrite import rewrite
from edgepack.onnx_graph.utils import Array, fold_constants
from edgepack.progress import Progress
from edgepack.recipe.model import MOST_RUNS, ImportedQuantize, ImportedTextModel
from edgepack.recipe.validate_imported import runtime_order
from edgepack.sandbox import runner as sandbox
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
from edgepack.util.text import counted
from edgepack_runtime.bundle.model_config import (
    BERT,
    CONFIG_NAME,
    ERNIE,
    MODEL_NAME,
    VOCAB_NAME,
    ModelConfig,
    TokenizerConfig,
    dump,
)
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.inference.encoding import Encoding
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from edgepack_runtime.tasks.registry import task_by_name

PARITY_ROWS: Final = 64
_PADDED_ROWS, _PADDING = 8, 4  # texts, and tokens that are added to each
_PADDING_TOLERANCE: Final = 1e-3  # of the largest logit: batches are summed in another order


@dataclass(frozen=True)
class Measured:
    """What the sandbox returns: the models, and what it found about the graph for `ModelConfig`."""

    models: ExportArtifact
    run_alone: bool
    hides_padding: bool


@dataclass(frozen=True)
class ClassifierStage(Stage[ExportArtifact]):
    """Writes `onnx-float/`, and `onnx-int8/` if it is wanted.

    Error of `run`: StageFailedError if the graph is no classifier of texts with these labels and this vocabulary, or
    cannot be run.
    """

    section: ImportedTextModel
    quantize: ImportedQuantize
    rows: ImportedRowsStage

    name = "graphs"
    version = 4
    kind = ExportArtifact
    libraries = IMPORT_LIBRARIES
    measures = True
    recipe_keys = GRAPHS_KEYS

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,)

    def decides(self, ctx: Context) -> Any:
        return {
            "labels": self.section.outputs,
            "max_length": self.section.max_length,
            "tokenizer": [self.section.tokenizer, self.section.lower_case],
            "quantize": keys.dump(self.quantize),
        }

    @property
    def _files(self) -> list[Path]:
        return [*conversion.files(self.section.graph), Path(self.section.vocab)]

    def inputs(self, ctx: Context) -> list[Input]:
        inputs = [keys.file_input(file.name, file) for file in self._files]
        return [keys.whole(ctx[self.rows]), *inputs, *keys.runtime()]

    def run(self, ctx: Context, out: Path) -> ExportArtifact:
        data, made = ctx.artifact(self.rows), out / "sandbox"
        reads = [Path(self.section.graph), *self._files, data.folder]
        leaves = conversion.leaves([MODEL_NAME], int8=self.quantize.method == "ptq")
        job = functools.partial(self._in_sandbox, data, made, leaves)
        found = sandbox.run(job, Measured, made, ctx.progress, stage=self.name, reads=reads, leaves=leaves)
        export = conversion.taken(found.models, made, out)
        config = replace(self._config(data), run_alone=found.run_alone, hides_padding=found.hides_padding)
        for model in export.models:
            shutil.copyfile(self.section.vocab, out / model.folder / VOCAB_NAME)
            _write_config(out / model.folder, replace(config, precision=model.precision))
        selection.write_texts(data.read("test"), out)
        return export

    def _config(self, data: DataArtifact) -> ModelConfig:
        return ModelConfig(
            task=data.task,
            labels=_in_order(self.section.outputs, data.task)[0],
            max_length=self.section.max_length,
            precision="float32",
            tokenizer=TokenizerConfig(ERNIE if self.section.tokenizer == "ernie" else BERT, self.section.lower_case),
            engine=ON_CPU,
            multi_label=data.multi_label,
        )

    def _in_sandbox(self, data: DataArtifact, made: Path, leaves: Sequence[str], progress: Progress) -> Measured:
        with tempfile.TemporaryDirectory() as scratch:
            found = self.write(data, Path(scratch), progress)
            conversion.hand_over(Path(scratch), made, leaves)
        return replace(found, models=replace(found.models, folder=made))

    def write(self, data: DataArtifact, out: Path, progress: Progress) -> Measured:
        """Write and measure the model folders, in the sandbox."""
        order, config = _in_order(self.section.outputs, data.task)[1], self._config(data)
        folder = out / FLOAT_FOLDER
        folder.mkdir()
        shutil.copyfile(self.section.vocab, folder / VOCAB_NAME)
        tokenizer = ErnieTokenizer(folder / VOCAB_NAME, config.tokenizer)
        encoding = Encoding(tokenizer, config, None, "truncate")
        rows = data.read("test")
        batches = [_arrays(encoding, [row]) for row in rows[:MOST_RUNS]]
        graph, apart = _graph(
            self.section.graph, batches, tokenizer.pad_id, order, data.text_task.in_second, out, progress
        )
        precision = precision_of(graph)
        if precision != "float32" and self.quantize.method == "ptq":
            raise StageFailedError(f"graphs: the graph is {SHORT[precision]} already", fix="remove `quantize`")
        graph, as_laid_out = _rewritten(graph, data.task, self.section.max_length, progress)
        onnx.save(graph, str(folder / MODEL_NAME))
        session = conversion.session(folder / MODEL_NAME)
        _check_outputs(session, batches, tokenizer.vocab_size, progress)
        config = replace(
            config,
            precision=precision,
            run_alone=finds_range(graph),
            hides_padding=not as_laid_out
            and _hides_padding(session, batches, tokenizer.pad_id, self.section.max_length),
        )
        apart_rows = data.read("unlabelled") if self.quantize.method == "ptq" else []  # calibrate, and are not scored
        runs = [Run(_feeds(session, _arrays(encoding, [row])), {}) for row in apart_rows]
        del session  # its memory
        _write_config(folder, config)
        _require_whole_length(folder, config)
        agrees = parity.Parity(apart, 0, min(len(batches), PARITY_RUNS)) if apart is not None else None
        exported = [Exported(f"{SHORT[precision]} ONNX", folder, precision, agrees, "Paddle Inference")]
        if self.quantize.method == "ptq":
            exported.append(_int8(runs, folder, config, rows, out, progress))
        float_model, *small = selection.measured(exported, data, progress)
        found = ExportArtifact(out, None, float_model, None, precision, message("ship.as_imported"))
        if small:
            hundred, most = evaluation.hundred_points(data, rows), self.quantize.max_drop_points
            ships, reason = selection.choose_imported(float_model, small[0], most, hundred)
            progress.line(reason)
            found = replace(found, small_model=small[0], shipped=ships.precision, reason=reason)
        return Measured(found, config.run_alone, config.hides_padding)


def _in_order(labels: tuple[str, ...], task: str) -> tuple[tuple[str, ...], list[int] | None]:
    """The labels in the order of the runtime, where the tag `O` is the first, and their positions in the graph."""
    order = runtime_order(labels, task_by_name(task))
    return tuple(labels[index] for index in order), None if order == sorted(order) else order


def _arrays(encoding: Encoding, rows: Sequence[Row]) -> tuple[Array, Array]:
    """Ids and types of rows as one batch, each of shape (rows, tokens)."""
    batch = encoding.batch(encoding.cut([row.item for row in rows]))
    shape = (batch.rows, batch.length)
    return np.array(batch.ids, np.int64).reshape(shape), np.array(batch.types, np.int64).reshape(shape)


def _graph(
    source: str,
    batches: Sequence[tuple[Array, Array]],
    pad_id: int,
    order: Sequence[int] | None,
    ends: bool,
    out: Path,
    progress: Progress,
) -> tuple[onnx.ModelProto, float | None]:
    """The graph for the runtime, and how much it differs from Paddle Inference if it was a graph of Paddle."""
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        raw = Path(scratch) / MODEL_NAME
        paddle = conversion.write(source, raw, progress)
        model = onnx.load(str(raw))
        imported = ImportedClassifier(model, ends=ends)
        apart = None
        if paddle is not None:
            session = conversion.session(raw)
            names = [value.name for value in session.get_outputs()]
            runs = []
            for ids, types in batches[:PARITY_RUNS]:
                feeds = imported.feeds(ids, types, pad_id)
                runs.append(Run(feeds, dict(zip(names, session.run(names, feeds), strict=True))))
            apart = conversion.parity(paddle, runs)
            progress.line(f"the graph agrees with Paddle Inference to {apart:.1e}")
    return fold_constants(imported.adapted(pad_id, order)), apart


def _rewritten(graph: onnx.ModelProto, task: str, max_length: int, progress: Progress) -> tuple[onnx.ModelProto, bool]:
    """The graph in the fastest layout, and whether it is in it: an ERNIE that is recognised. Else as it is."""
    layout: Layout = replace(fastest(pairs=task_by_name(task).pairs, tokens=max_length), unpadded=True)
    try:
        _, rewritten = rewrite(graph, layout)
    except Unrecognised as reason:
        progress.line(f"the graph is not rewritten: {reason}")
        return graph, False
    progress.line("the graph is an ERNIE: rewritten for speed, with the same logits")
    return rewritten, True


def _check_outputs(
    session: onnxruntime.InferenceSession,
    batches: Sequence[tuple[Array, Array]],
    vocab_size: int,
    progress: Progress,
) -> None:
    """Run some test rows, and the last token of the vocabulary; warn of outputs that look like probabilities.

    Raises:
        StageFailedError: the graph cannot be run, or has fewer tokens than the vocabulary.
    """
    try:
        found = [_logits(session, batch) for batch in batches]
    except Exception as error:
        raise StageFailedError("graphs: the graph cannot be run on test rows", why=str(error)[:500]) from error
    if all((one >= 0).all() and np.allclose(one.sum(axis=-1), 1, atol=1e-3) for one in found):
        progress.line("warning: the outputs look like probabilities: scores will be too low; export logits")
    last = np.full((1, 3), vocab_size - 1, np.int64)
    try:
        _logits(session, (last, np.zeros_like(last)))
    except Exception as error:
        raise StageFailedError(
            f"graphs: the vocabulary has {vocab_size} tokens, and the graph does not know the last of them",
            why=str(error)[:500],
            fix="give the vocab.txt that the model was trained with",
        ) from error


def _hides_padding(
    session: onnxruntime.InferenceSession, batches: Sequence[tuple[Array, Array]], pad_id: int, max_length: int
) -> bool:
    """Whether texts have the same logits alone and padded, by at least one token, as in a batch with longer ones."""
    for ids, types in batches[:_PADDED_ROWS]:
        kept = max(1, min(ids.shape[1], max_length - _PADDING))  # of a text without room for more: its beginning
        width = [(0, 0), (0, min(_PADDING, max(1, max_length - kept)))]
        short = ids[:, :kept], types[:, :kept]
        longer = np.pad(short[0], width, constant_values=pad_id), np.pad(short[1], width)
        alone, padded = _logits(session, short)[0], _logits(session, longer)[0]
        largest = max(1.0, float(np.abs(alone).max()))
        if not np.abs(alone - padded[: len(alone)]).max() <= _PADDING_TOLERANCE * largest:
            return False
    return True


def _logits(session: onnxruntime.InferenceSession, batch: tuple[Array, Array]) -> Array:
    return np.asarray(session.run([OUTPUT], _feeds(session, batch))[0])


def _feeds(session: onnxruntime.InferenceSession, batch: tuple[Array, Array]) -> dict[str, Array]:
    """Ids and types of a batch by name, as far as the graph reads them."""
    reads = {value.name for value in session.get_inputs()}
    return {name: values for name, values in zip((IDS, TYPES), batch, strict=True) if name in reads}


def _write_config(folder: Path, config: ModelConfig) -> None:
    (folder / CONFIG_NAME).write_bytes(dump(config))


def _require_whole_length(folder: Path, config: ModelConfig) -> None:
    """Run a text of `max_length` tokens.

    Raises:
        StageFailedError: the graph does not read so many, or gives no number for each label.
    """
    text = "好" * config.max_length
    try:
        Predictor(folder, threads=1).predict((text, text) if config.takes_pairs else text)
    except EdgepackError as error:
        raise StageFailedError(
            f"graphs: the graph does not answer a text of {config.max_length} tokens",
            why=error.why or error.what,
            fix="compare `model.labels`, `model.vocab` and `model.max_length` with what the graph was trained with",
        ) from error


def _int8(
    runs: Sequence[Run], given: Path, config: ModelConfig, rows: Sequence[Row], out: Path, progress: Progress
) -> Exported:
    """The model folder in INT8, quantized by ONNX Runtime on the runs, and compared on the rows.

    Raises:
        StageFailedError: there are no runs.
    """
    from edgepack.export import imported_int8

    if not runs:
        raise StageFailedError(
            "graphs: there are too few test rows to calibrate INT8 with a quarter of them",
            fix="give at least four, better 128, or set `quantize: {method: none}`",
        )
    folder = out / INT8_FOLDER
    folder.mkdir()
    shutil.copyfile(given / VOCAB_NAME, folder / VOCAB_NAME)
    progress.line(f"quantizing the graph with {counted(len(runs), 'row')} that are not scored")
    imported_int8.write(given / MODEL_NAME, runs, folder / MODEL_NAME)
    _write_config(folder, replace(config, precision="int8"))
    some = rows[:PARITY_ROWS]
    before, after = (evaluation.logits(Predictor(one), some) for one in (given, folder))
    return Exported(
        "INT8 ONNX",
        folder,
        "int8",
        parity.compare(before, after),
        "float ONNX",
        f"calibrated on {counted(len(runs), 'other row')}",
    )
