"""Stage `graphs`: the model folder of a given model with its adapter, scored and timed on the golden examples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import onnx

from edgepack.artifacts import SCORES_FILE, ExamplesArtifact, ExportArtifact, LedgerRow, ModelFile, mebibytes
from edgepack.errors import StageFailedError
from edgepack.export import examples as export_examples
from edgepack.progress import Progress
from edgepack.recipe.model import GivenModel
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
    for name, file in section.graphs.items():
        _copy_graph(Path(file), folder / f"{name}.onnx")
    shutil.copyfile(adapter, folder / ADAPTER_NAME)
    for file in section.files:
        shutil.copyfile(file, folder / Path(file).name)
    config = ModelConfig(CUSTOM, (), 0, "float32", adapter=AdapterConfig(examples.item, tuple(sorted(section.graphs))))
    (folder / CONFIG_NAME).write_bytes(dump(config))
    found = export_examples.answer(folder, examples, packages, "answers of the adapter", progress)
    scores = {"float32": found.scores}
    (out / SCORES_FILE).write_text(json.dumps(scores) + "\n", encoding="utf-8")
    row = LedgerRow(
        "float ONNX",
        found.score,
        model_mib=mebibytes(weight_bytes(folder)),
        p50_ms=found.p50_ms,
        p95_ms=found.p95_ms,
        mean_ms=found.mean_ms,
    )
    model = ModelFile(FLOAT_FOLDER, "float32", weight_bytes(folder), row, {found.score.metric: found.score})
    return ExportArtifact(out, None, model, None, "float32", "the model as it was given")


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
