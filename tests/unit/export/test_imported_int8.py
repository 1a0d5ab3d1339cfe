"""INT8 of imported graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.artifacts import LedgerRow, ModelFile, Precision, Score
from edgepack.errors import StageFailedError
from edgepack.export import imported_int8, selection
from edgepack.export.handler_answers import Run

WIDTH = 64


def write_product(path: Path, opset: int = 17) -> Path:
    """y = x @ w over rows of WIDTH numbers; the magnitudes of w's columns differ."""
    drawn = np.random.default_rng(0)
    weight = (drawn.standard_normal((WIDTH, WIDTH)) * np.geomspace(0.01, 1, WIDTH)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", "y"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def outputs(path: Path, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0])


@pytest.mark.parametrize("opset", [11, 17])  # a scale per channel needs 13
def test_a_product_is_smaller_and_close_in_each_column(tmp_path: Path, opset: int) -> None:
    graph, small = write_product(tmp_path / "model.onnx", opset), tmp_path / "small.onnx"
    drawn = np.random.default_rng(1)
    runs = [Run({"x": drawn.uniform(-1, 1, (4, WIDTH)).astype(np.float32)}, {}) for _ in range(2)]
    imported_int8.write(graph, runs, small)
    assert small.stat().st_size < 0.6 * graph.stat().st_size
    x = runs[0].inputs["x"]
    wanted, found = outputs(graph, x), outputs(small, x)
    # A scale per column: a column of small weights is as close, in parts of its size, as one of large weights.
    assert (np.abs(found - wanted).max(axis=0) / np.abs(wanted).max(axis=0)).max() < 0.05


def test_a_graph_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(StageFailedError, match=r"ONNX Runtime cannot quantize model\.onnx"):
        imported_int8.write(tmp_path / "model.onnx", [Run({}, {})], tmp_path / "small.onnx")


def model_file(precision: Precision, score: float, onnx_bytes: int, p50_ms: float) -> ModelFile:
    found = Score(score, score, score, 10, 0.95, "score")
    return ModelFile(precision, precision, onnx_bytes, LedgerRow(precision, found, p50_ms=p50_ms), {"score": found})


@pytest.mark.parametrize(
    ("score", "onnx_bytes", "p50_ms", "ships", "reason"),
    [
        (0.9, 50, 5.0, "int8", "INT8 ships"),
        (0.896, 90, 9.0, "int8", "INT8 ships"),
        (0.89, 50, 5.0, "float32", "it loses 1.00 points, where 0.5 may be lost"),
        (0.9, 95, 5.0, "float32", "at most 0.90 x of both"),
        (0.9, 50, 9.5, "float32", "at most 0.90 x of both"),
    ],
)
def test_int8_ships_only_if_it_is_smaller_and_faster_by_a_tenth_and_as_good(
    score: float, onnx_bytes: int, p50_ms: float, ships: str, reason: str
) -> None:
    given, small = model_file("float32", 0.9, 100, 10.0), model_file("int8", score, onnx_bytes, p50_ms)
    chosen, why = selection.choose_imported(given, small, 0.5)
    assert chosen.precision == ships
    assert reason in why
