"""Models of one tiny graph, y = weight * x + bias over rows of four numbers, with a handler; and a release around one.

The handler puts the length of its item into x[0], so an item of length 3 has the answer 2 * 3 + 1 = 7. Its score falls
from 1 to 0 over a distance of 1 from the expected answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper
from tests.unit.runtime.tiny_model import write_lines, write_manifest

from edgepack_runtime.bundle import golden, model_config
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.bundle.model_config import CONFIG_NAME, CUSTOM, HANDLER_NAME, HandlerConfig, ModelConfig

HANDLER = """\
class Handler:
    item = "{item}"

    def preprocess(self, item):
        return {{"x": [[float(len(item)), 1.0, 2.0, 3.0]]}}

    def postprocess(self, outputs):
        return outputs["y"].tolist()[0][0]

    def score(self, answer, expected):
        return max(0.0, 1.0 - abs(answer - expected))
"""


def write_graph(path: Path, *, weight: float = 2.0, bias: float = 1.0, dtype: int = TensorProto.FLOAT) -> Path:
    """y = weight * x + bias; x and y have the shape [N, 4]."""
    x, y = (helper.make_tensor_value_info(name, dtype, ["N", 4]) for name in ("x", "y"))
    numbers = {"weight": weight, "bias": bias}
    constants = [
        numpy_helper.from_array(np.array(value, helper.tensor_dtype_to_np_dtype(dtype)), name)
        for name, value in numbers.items()
    ]
    nodes = [helper.make_node("Mul", ["x", "weight"], ["product"]), helper.make_node("Add", ["product", "bias"], ["y"])]
    graph = helper.make_graph(nodes, "tiny", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def write_echo(path: Path, dtypes: Iterable[str], *, shape: Sequence[str | int] = ("N", "M")) -> Path:
    """A graph with an input of each type, named as its type, and as many outputs that equal them: `OF_float32`."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in dtypes}
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info(f"OF_{name}", kind, shape) for name, kind in kinds.items()]
    nodes = [helper.make_node("Identity", [name], [f"OF_{name}"]) for name in kinds]
    graph = helper.make_graph(nodes, "echo", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def write_imported(
    folder: Path,
    *,
    item: str = "json",
    handler: str | None = None,
    graphs: Sequence[str] = ("model",),
    weight: float = 2.0,
) -> Path:
    """A model folder; `handler` is the source instead of HANDLER."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in graphs:
        write_graph(folder / f"{name}.onnx", weight=weight)
    (folder / HANDLER_NAME).write_text(HANDLER.format(item=item) if handler is None else handler, encoding="utf-8")
    config = ModelConfig(CUSTOM, (), 0, "float32", handler=HandlerConfig(item, tuple(graphs)))
    (folder / CONFIG_NAME).write_bytes(model_config.dump(config))
    return folder


def write_imported_release(
    folder: Path,
    rows: Iterable[dict[str, Any]],
    *,
    files: dict[str, bytes] | None = None,
    gates: dict[str, Any] | None = None,
    tolerance: float = 0.05,
    **model: Any,
) -> tuple[Path, Manifest]:
    """An unpacked release with the examples `rows`; `files` lie below `golden/files`."""
    write_imported(folder / golden.MODEL_FOLDER, **model)
    (folder / "golden" / "files").mkdir(parents=True)
    for name, content in (files or {}).items():
        (folder / "golden" / "files" / name).write_bytes(content)
    write_lines(folder / golden.ROWS_FILE, rows)
    return folder, write_manifest(folder, CUSTOM, gates or {}, tolerance)
