"""Stage `graphs`: the model folder of a given model with its adapter, scored and timed on the golden examples."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime

from edgepack.artifacts import SCORES_FILE, ExamplesArtifact, ExportArtifact, LedgerRow, ModelFile, mebibytes
from edgepack.errors import StageFailedError
from edgepack.export import examples as export_examples
from edgepack.export.examples import Run
from edgepack.progress import Progress
from edgepack.recipe.model import GivenModel
from edgepack.recipe.validate_custom import GRAPHS
from edgepack.training import environment
from edgepack.util.text import counted
from edgepack_runtime.bundle.model_config import (
    ADAPTER_NAME,
    CONFIG_NAME,
    CUSTOM,
    AdapterConfig,
    ModelConfig,
    dump,
    weight_bytes,
)

VERSION = 1
FLOAT_FOLDER: Final = "onnx-float"
TOLERANCE: Final = 1e-3  # of the largest magnitude of an output; deep graphs were seen to differ by 3e-6
_OLD_GRAPH: Final = (
    "a .pdmodel of Paddle 2 converts with Paddle 2.6: make .venv-lane26/.installed, and build with "
    ".venv-lane26/bin/edgepack; or export the model again with Paddle 3"
)


@dataclass(frozen=True)
class PaddleFiles:
    """A static graph of Paddle: its `.json` or `.pdmodel`, and its `.pdiparams`."""

    graph: Path
    parameters: Path

    @classmethod
    def of(cls, source: Path) -> PaddleFiles | None:
        """The files of a folder or of a graph file; None for an ONNX file.

        Raises:
            StageFailedError: the folder holds no graph or several, or the parameters are missing.
        """
        if source.suffix == ".onnx":
            return None
        found = [source] if source.is_file() else sorted(file for file in source.glob("*") if file.suffix in GRAPHS)
        graphs = [file for file in found if file.with_suffix(".pdiparams").is_file()]
        if len(graphs) != 1:
            raise StageFailedError(
                f"graphs: {source.name} is no folder of Paddle Inference",
                why=f"it holds {counted(len(graphs), 'graph')} with parameters",
                fix="give a folder with one .json or .pdmodel and its .pdiparams; or that graph file; or an .onnx file",
            )
        return cls(graphs[0], graphs[0].with_suffix(".pdiparams"))

    @property
    def files(self) -> tuple[Path, Path]:
        """Both files."""
        return self.graph, self.parameters


def run(
    section: GivenModel,
    adapter: Path,
    examples: ExamplesArtifact,
    packages: Path | None,
    out: Path,
    progress: Progress,
) -> ExportArtifact:
    """Write `onnx-float/` and `scores.json`.

    Args:
        adapter: the Python file.
        packages: folder with the packages that the adapter imports; None without any.

    Raises:
        StageFailedError: a graph is no ONNX model, or the adapter fails on an example.
    """
    folder = out / FLOAT_FOLDER
    folder.mkdir()
    sources = {name: PaddleFiles.of(Path(file)) for name, file in section.graphs.items()}
    for name, source in sources.items():
        target = folder / f"{name}.onnx"
        if source is None:
            _copy_graph(Path(section.graphs[name]), target)
        else:
            _convert(source, target, progress)
    shutil.copyfile(adapter, folder / ADAPTER_NAME)
    for file in section.files:
        shutil.copyfile(file, folder / Path(file).name)
    config = ModelConfig(CUSTOM, (), 0, "float32", adapter=AdapterConfig(examples.item, tuple(sorted(section.graphs))))
    (folder / CONFIG_NAME).write_bytes(dump(config))
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        runs = Path(scratch) if any(sources.values()) else None
        found = export_examples.answer(folder, examples, packages, "answers of the adapter", progress, runs=runs)
        compared = {
            name: _parity(source, export_examples.read_runs(Path(scratch), name))
            for name, source in sources.items()
            if source is not None
        }
    for name, off in compared.items():
        progress.line(f"graph {name} agrees with Paddle Inference to {off:.1e}")
    scores = {"float32": found.scores}
    (out / SCORES_FILE).write_text(json.dumps(scores) + "\n", encoding="utf-8")
    row = LedgerRow(
        "float ONNX",
        found.score,
        model_mib=mebibytes(weight_bytes(folder)),
        p50_ms=found.p50_ms,
        p95_ms=found.p95_ms,
        mean_ms=found.mean_ms,
        parity=max(compared.values(), default=None),
        parity_with="Paddle Inference" if compared else None,
    )
    model = ModelFile(FLOAT_FOLDER, "float32", weight_bytes(folder), row, {found.score.metric: found.score})
    return ExportArtifact(out, None, model, None, "float32", "the model as it was given")


def _convert(source: PaddleFiles, target: Path, progress: Progress) -> None:
    """Convert a graph of Paddle to ONNX.

    Raises:
        StageFailedError: the installed paddle2onnx cannot convert it.
    """
    environment.start(progress)
    from edgepack.training.models import paddle_graph

    raw = target.with_name(f".{target.name}")
    try:
        paddle_graph.convert(source.graph, source.parameters, raw)
        _copy_graph(raw, target)
        _load(target)
    except StageFailedError as error:
        fix = _OLD_GRAPH if source.graph.suffix == ".pdmodel" else error.fix
        raise StageFailedError(f"graphs: {error.what}", why=error.why, fix=fix) from error
    finally:
        raw.unlink(missing_ok=True)


def _load(graph: Path) -> None:
    """Load a converted graph: paddle2onnx was seen to report success for graphs that do not load.

    Raises:
        StageFailedError: it does not load.
    """
    try:
        onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - pybind11 raises kinds of its own
        raise StageFailedError("what paddle2onnx wrote does not load", why=str(error)[:500]) from error


def _parity(source: PaddleFiles, runs: Sequence[Run]) -> float:
    """Largest difference of an output to Paddle Inference's, relative to the largest magnitude of that output.

    Raises:
        StageFailedError: it exceeds `TOLERANCE`, or the adapter ran the graph for no example.
    """
    from edgepack.training.models import paddle_graph

    worst = 0.0
    for run in runs:
        wanted = paddle_graph.outputs(source.graph, source.parameters, run.inputs)
        for theirs, ours in zip(wanted, run.outputs.values(), strict=True):
            scale = float(np.abs(theirs).max()) or 1.0
            worst = max(worst, float(np.abs(theirs - ours).max()) / scale)
    if not runs or not worst <= TOLERANCE:
        why = f"an output is {worst:.1e} of its magnitude off" if runs else "the adapter ran it for no example"
        raise StageFailedError(f"graphs: {source.graph.name} is not shown to equal Paddle Inference", why=why)
    return worst


def _copy_graph(source: Path, target: Path) -> None:
    """Copy an ONNX file that is valid and complete.

    Raises:
        StageFailedError: it is not.
    """
    try:
        model = onnx.load(str(source), load_external_data=False)
        onnx.checker.check_model(model)
    except Exception as error:
        raise StageFailedError(
            f"graphs: {source.name} is no valid ONNX model", why=str(error)[:500], fix="export the model again"
        ) from error
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise StageFailedError(
            f"graphs: {source.name} keeps weights in other files",
            why="a bundle carries each graph as one file",
            fix="save it as one: onnx.save(onnx.load(FILE), OTHER)",
        )
    shutil.copyfile(source, target)
