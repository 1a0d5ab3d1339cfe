"""Conversion of imported graphs: ONNX is copied; graphs of Paddle are converted, and compared with Paddle Inference.

All of this but `files`, `leaves` and `taken` runs in the sandbox alone.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from edgepack.artifacts import ExportArtifact
from edgepack.errors import StageFailedError
from edgepack.export.handler_answers import Run
from edgepack.progress import Progress
from edgepack.recipe.validate_imported import GRAPHS
from edgepack.sandbox import operators
from edgepack.training import environment
from edgepack.util import confined_files
from edgepack.util.text import counted
from edgepack_runtime.bundle.model_config import weight_bytes

FLOAT_FOLDER: Final = "onnx-float"
INT8_FOLDER: Final = "onnx-int8"
PARITY_RUNS: Final = 3  # of each graph, compared with Paddle Inference
TOLERANCE: Final = 1e-3  # of the largest magnitude of an output; deep graphs were seen to differ by 3e-6
# Of stage `graphs`, for a handler and for a text model.
IMPORT_LIBRARIES: Final = ("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx", "onnx", "onnxruntime")
GRAPHS_KEYS: Final[Mapping[str, str]] = {"": "model", "quantize": "quantize"}
_OLD_GRAPH: Final = (
    "a .pdmodel of Paddle 2 converts with Paddle 2.6: make .venv-paddle26/.installed, and build with "
    ".venv-paddle26/bin/edgepack; or export the model again with Paddle 3"
)


def leaves(graphs: Iterable[str], *, int8: bool) -> list[str]:
    """The files that the sandbox leaves for the graphs of these file names."""
    return [f"{folder}/{graph}" for graph in graphs for folder in (FLOAT_FOLDER, INT8_FOLDER)[: 1 + int8]]


def hand_over(models: Path, made: Path, leaves: Iterable[str]) -> None:
    """Move the graphs out of the model folders that were tried; the build adds the other files from their sources."""
    for leaf in leaves:
        (made / leaf).parent.mkdir(exist_ok=True)
        shutil.move(models / leaf, made / leaf)


def taken(found: ExportArtifact, made: Path, out: Path) -> ExportArtifact:
    """The result of the sandbox, with its graphs moved to `out`. Folders and sizes are not those that it returned.

    Raises:
        StageFailedError: it returned other models than those that it left.
    """
    folders = [folder for folder in (FLOAT_FOLDER, INT8_FOLDER) if (made / folder).is_dir()]
    precisions = [model.precision for model in found.models]
    if len(precisions) != len(folders) or found.shipped not in precisions or precisions[1:] not in ([], ["int8"]):
        raise StageFailedError(f"graphs: the process of the model returned the models {precisions}")
    for folder in folders:
        (made / folder).rename(out / folder)
    made.rmdir()
    float_model, *small = (
        replace(model, folder=folder, onnx_bytes=weight_bytes(out / folder))
        for model, folder in zip(found.models, folders, strict=True)
    )
    return ExportArtifact(out, None, float_model, small[0] if small else None, found.shipped, found.reason)


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
        why = f"it holds {counted(len(graphs), 'graph')} with parameters"
        if len(graphs) == 1:
            try:
                files = [graphs[0], graphs[0].with_suffix(".pdiparams")]
                return cls(*(confined_files.below(graphs[0].parent, file.name) for file in files))
            except (OSError, ValueError) as error:
                why = str(error)
        raise StageFailedError(
            f"graphs: {source.name} is not a folder of Paddle Inference",
            why=why,
            fix="give a folder with one .json or .pdmodel and its .pdiparams; or that graph file; or an .onnx file",
        )


def session(graph: Path) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime on the CPU, which prints errors alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def files(source: str) -> tuple[Path, ...]:
    """The files of a given graph: of ONNX also those with weights outside of it.

    Raises:
        StageFailedError: as `PaddleFiles.of` and `operators.outside_files`.
    """
    found = PaddleFiles.of(Path(source))
    return (Path(source), *operators.outside_files(Path(source))) if found is None else (found.graph, found.parameters)


def write(source: str, target: Path, progress: Progress) -> PaddleFiles | None:
    """Write a given graph as ONNX; return the files of Paddle that it was converted from, if it was.

    Raises:
        StageFailedError: it is not a valid ONNX model, has an operator that is not allowed, or cannot be converted.
    """
    found = PaddleFiles.of(Path(source))
    operators.require_known(Path(source) if found is None else found.graph)
    if found is None:
        _copy_graph(Path(source), target)
    else:
        _convert(found, target, progress)
    return found


def _convert(source: PaddleFiles, target: Path, progress: Progress) -> None:
    """Convert a graph of Paddle to ONNX.

    Raises:
        StageFailedError: the installed paddle2onnx cannot convert it.
    """
    environment.start(progress, training=False)
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
        session(graph)
    except Exception as error:
        raise StageFailedError("what paddle2onnx wrote does not load", why=str(error)[:500]) from error


def parity(source: PaddleFiles, runs: Sequence[Run]) -> float:
    """Largest difference of an output to Paddle Inference's, relative to the largest magnitude of that output.

    Raises:
        StageFailedError: it exceeds `TOLERANCE`, or the handler ran the graph for no example.
    """
    from edgepack.training.models import paddle_graph

    apart = [
        difference(theirs, ours)
        for run in runs
        for theirs, ours in zip(
            paddle_graph.outputs(source.graph, source.parameters, run.inputs), run.outputs.values(), strict=True
        )
    ]
    worst = max(apart, default=0.0)
    if not runs or not worst <= TOLERANCE:
        why = f"an output is {worst:.1e} of its magnitude off" if runs else "the handler ran it for no example"
        raise StageFailedError(
            f"graphs: {source.graph.name} is not shown to equal Paddle Inference",
            why=why,
            fix="paddle2onnx converts an operator wrongly: export the model as .onnx, or with another Paddle",
        )
    return worst


def difference(theirs: npt.NDArray[Any], ours: npt.NDArray[Any]) -> float:
    """The largest difference, relative to the largest magnitude of `theirs`; infinite for other shapes or a NaN."""
    if theirs.shape != ours.shape:
        return math.inf
    if not theirs.size:
        return 0.0
    wanted, found = theirs.astype(np.float64), ours.astype(np.float64)
    apart = float(np.abs(wanted - found).max()) / (float(np.abs(wanted).max()) or 1.0)
    return apart if math.isfinite(apart) else math.inf


def _copy_graph(source: Path, target: Path) -> None:
    """Copy an ONNX file that is valid and complete, as one file.

    Raises:
        StageFailedError: it is not.
    """
    outside = operators.outside_files(source)
    try:
        model = onnx.load(str(source))
        if outside:  # as `torch.onnx.export` writes it; a bundle carries each graph as one file
            onnx.save(model, str(target))
        onnx.checker.check_model(model)
    except Exception as error:
        raise StageFailedError(
            f"graphs: {source.name} is not a valid ONNX model", why=str(error)[:500], fix="export the model again"
        ) from error
    if not outside:
        shutil.copyfile(source, target)
