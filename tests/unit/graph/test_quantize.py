"""The writer and its lowering on a small graph: int8 in the file, close to float, one QuantizeLinear a tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.errors import StageFailedError
from edgepack.graph.lower_ort_cpu import lower
from edgepack.graph.neutral import ActivationRange, make_plan, quantize_columns, quantize_rows
from edgepack.graph.view import GraphView

VOCABULARY, WIDTH, LABELS = 40, 16, 3
Float = npt.NDArray[np.float32]


def small_graph() -> onnx.ModelProto:
    """Embedding -> two MatMuls that read one tensor (one with a bias, one without) -> sum -> MatMul with bias."""
    random = np.random.default_rng(7)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.normal(0, 0.5, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Add", ["a", "b1"], ["a_bias"]),
        helper.make_node("MatMul", ["x", "w2"], ["b"]),
        helper.make_node("Mul", ["a_bias", "b"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["d"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["d", "w3"], ["e"]),
        helper.make_node("Add", ["e", "b3"], ["logits"]),
    ]
    constants = [
        weight("table", VOCABULARY, WIDTH),
        weight("w1", WIDTH, WIDTH),
        weight("b1", WIDTH),
        weight("w2", WIDTH, WIDTH),
        weight("w3", WIDTH, LABELS),
        weight("b3", LABELS),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "t"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", LABELS])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, ids: npt.NDArray[np.int64]) -> Float:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"input_ids": ids})[0])


def observed(model: onnx.ModelProto, ids: npt.NDArray[np.int64]) -> list[LinearScales]:
    """The ranges that a perfect observer would give on `ids`."""
    view = GraphView(model)
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    inputs = {"w1": "x", "w2": "x", "w3": "d"}
    for name in set(inputs.values()):
        probe.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    session = ort.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    seen = {name: session.run([name], {"input_ids": ids})[0] for name in set(inputs.values())}
    return [
        LinearScales(
            layer=weight,
            weight_sha256=weight_digest(view.constant(weight)),
            activation_min=float(seen[tensor].min()),
            activation_max=float(seen[tensor].max()),
            weight_abs_max=tuple(np.abs(np.asarray(view.constant(weight))).max(axis=0).tolist()),
        )
        for weight, tensor in inputs.items()
    ]


@pytest.fixture
def ids() -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, VOCABULARY, (8, 12))


def test_int8_is_close_to_float_and_smaller(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    lowered = lower(model, make_plan(model, observed(model, ids), embeddings=True))
    reference, quantized = run(model, ids), run(lowered, ids)
    spread = float(reference.max() - reference.min())
    assert np.abs(reference - quantized).max() < 0.05 * spread
    assert np.abs(reference - quantized).max() > 0  # it is not the float graph that ran
    stored = {item.name: item.data_type for item in lowered.graph.initializer}
    for name in ("table", "w1", "w2", "w3"):
        assert name not in stored
        assert stored[f"{name}.int8"] == TensorProto.INT8


def test_a_tensor_with_two_readers_is_quantized_once(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    lowered = lower(model, make_plan(model, observed(model, ids), embeddings=True))
    quantizers = [node.input[0] for node in lowered.graph.node if node.op_type == "QuantizeLinear"]
    assert sorted(quantizers) == ["d", "x"]
    assert not [node for node in lowered.graph.node if node.op_type == "MatMul"]


def test_biases_are_absorbed_and_a_missing_one_stays_missing(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    lowered = lower(model, make_plan(model, observed(model, ids), embeddings=True))
    biases = [node.input[6] for node in lowered.graph.node if node.op_type == "MatMulIntegerToFloat"]
    assert biases == ["b1", "", "b3"]
    assert not [node for node in lowered.graph.node if node.op_type == "Add"]


def test_float_embeddings_stay_float_when_asked(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    lowered = lower(model, make_plan(model, observed(model, ids), embeddings=False))
    assert "table" in {item.name for item in lowered.graph.initializer}


def test_the_source_graph_is_left_alone(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    before = model.SerializeToString(deterministic=True)
    lower(model, make_plan(model, observed(model, ids), embeddings=True))
    assert model.SerializeToString(deterministic=True) == before


def test_a_weight_without_ranges_is_an_error(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    with pytest.raises(StageFailedError, match="no ranges were observed for MatMul weight 'w3'"):
        make_plan(model, observed(model, ids)[:2], embeddings=True)


def test_ranges_that_fit_no_weight_are_an_error(ids: npt.NDArray[np.int64]) -> None:
    model = small_graph()
    foreign = LinearScales("lost.layer", "0" * 64, -1.0, 1.0, (1.0,))
    with pytest.raises(StageFailedError) as caught:
        make_plan(model, [*observed(model, ids), foreign], embeddings=True)
    assert caught.value.why == "lost.layer"


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (-2.0, 0.0), (-1e-3, 1e3)])
def test_zero_is_exact_in_every_activation_range(low: float, high: float) -> None:
    grid = ActivationRange(low, high)
    zero_point = int(grid.zero_point)
    assert 0 <= zero_point <= 255
    assert (zero_point - zero_point) * float(grid.scale) == 0.0
    for end in (low, high):  # both ends are at most half a step off the grid
        nearest = np.clip(np.round(end / grid.scale) + zero_point, 0, 255) - zero_point
        assert abs(float(nearest * grid.scale) - end) <= 0.51 * float(grid.scale)


def test_rounding_error_is_at_most_half_a_step() -> None:
    weight = np.random.default_rng(3).normal(0, 1, (64, 8)).astype(np.float32)
    scales = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
    assert np.all(np.abs(quantize_columns(weight, scales) * scales - weight) <= 0.5001 * scales)
    rows, row_scales = quantize_rows(weight)
    assert row_scales.shape == (64, 1)
    assert np.all(np.abs(rows * row_scales - weight) <= 0.5001 * row_scales)


def test_a_row_of_zeros_stays_zero() -> None:
    rows, scales = quantize_rows(np.zeros((2, 4), dtype=np.float32))
    assert not rows.any()
    assert np.isfinite(scales).all()
