"""Folding keeps what the graph computes; two exports of one network become the same bytes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit.onnx_graph.ernie_graphs import either

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.utils import fold_constants, name_by_position


def masked_embedding() -> onnx.ModelProto:
    """What paddle2onnx writes for an embedding with a padding row: table x mask, through an Identity."""
    table = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    mask = np.ones((50, 8), dtype=np.float32)
    mask[0] = 0
    nodes = [
        helper.make_node("Mul", ["table", "mask"], ["masked"]),
        helper.make_node("Identity", ["masked"], ["same"]),
        helper.make_node("Gather", ["same", "ids"], ["out"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "t"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["b", "t", 8])
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(mask, "mask")]
    graph = helper.make_graph(nodes, "masked", [ids], [out], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def test_the_table_is_stored_once_and_the_result_is_the_same() -> None:
    model = masked_embedding()
    folded = fold_constants(model)
    assert [node.op_type for node in folded.graph.node] == ["Gather"]
    assert folded.ByteSize() < 0.6 * model.ByteSize()
    assert [(item.domain, item.version) for item in folded.opset_import] == [("", 17)]
    assert folded.ir_version == 8
    before, after = (run(graph, ids=np.arange(10).reshape(2, 5)) for graph in (model, folded))
    np.testing.assert_array_equal(before, after)
    assert not np.asarray(after)[0, 0].any()


def test_operators_of_other_domains_are_left_as_they_are() -> None:
    model = masked_embedding()
    model.graph.node[2].output[0] = "gathered"
    model.graph.node.append(helper.make_node("Gelu", ["gathered"], ["out"], domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    before = model.SerializeToString()
    assert fold_constants(model).SerializeToString() == before


def test_what_only_a_branch_reads_is_kept() -> None:
    model = masked_embedding()
    graph = model.graph
    graph.node[2].output[0] = "gathered"
    graph.initializer.append(numpy_helper.from_array(np.ones(8, np.float32), "shift"))
    graph.input.append(helper.make_tensor_value_info("up", TensorProto.BOOL, []))
    graph.node.append(either("up", ["gathered", "shift"], "out"))
    feeds = {"ids": np.arange(10).reshape(2, 5), "up": np.array(True)}
    before, after = (run(each, **feeds) for each in (model, fold_constants(model)))
    np.testing.assert_array_equal(before, after)


def test_a_graph_that_onnxruntime_refuses_is_a_failed_stage() -> None:
    model = masked_embedding()
    model.graph.node[2].op_type = "NoSuchOperator"
    with pytest.raises(StageFailedError, match="cannot load the exported graph"):
        fold_constants(model)


F = TensorProto.FLOAT


def exported(prefix: str, *, swap: bool = False) -> onnx.ModelProto:
    """clip(x @ w + b) - b, with every inner name made of `prefix`, and the constants in either order."""
    nodes = [
        helper.make_node("MatMul", ["x", f"{prefix}.w"], [f"{prefix}.1"], name=f"{prefix}/MatMul"),
        helper.make_node("Add", [f"{prefix}.1", f"{prefix}.b"], [f"{prefix}.2"], name=f"{prefix}/Add"),
        helper.make_node("Clip", [f"{prefix}.2", "", f"{prefix}.max"], [f"{prefix}.3"]),
        helper.make_node("Sub", [f"{prefix}.3", f"{prefix}.b"], [f"{prefix}.out"]),
    ]
    w = numpy_helper.from_array(np.eye(3, dtype=np.float32), f"{prefix}.w")
    b = numpy_helper.from_array(np.arange(3, dtype=np.float32), f"{prefix}.b")
    most = numpy_helper.from_array(np.float32(2), f"{prefix}.max")
    unread = numpy_helper.from_array(np.float32(9), f"{prefix}.unread")
    constants = [unread, most, b, w] if swap else [w, b, most, unread]
    x, out, inner = (helper.make_tensor_value_info(name, F, ["n", 3]) for name in ("x", f"{prefix}.out", f"{prefix}.1"))
    graph = helper.make_graph(nodes, prefix, [x], [out], constants, value_info=[inner])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(model: onnx.ModelProto) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": np.float32([[1, 2, 3], [-4, 0, 4]])})[0])


def test_other_names_and_orders_give_the_same_bytes() -> None:
    one, two = exported("linear_0"), exported("linear_24", swap=True)
    assert one.SerializeToString() != two.SerializeToString()
    for model in (one, two):
        name_by_position(model, "logits")
    assert one.SerializeToString() == two.SerializeToString()


def test_names_are_of_the_place_and_the_graph_computes_the_same() -> None:
    model = exported("linear_0", swap=True)
    before = answer(model)
    name_by_position(model, "logits")
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(answer(model), before)
    graph = model.graph
    assert [(node.name, *node.input, *node.output) for node in graph.node] == [
        ("MatMul_1", "x", "MatMul_1.1", "MatMul_1"),
        ("Add_1", "MatMul_1", "Add_1.1", "Add_1"),
        ("Clip_1", "Add_1", "", "Clip_1.2", "Clip_1"),
        ("Sub_1", "Clip_1", "Add_1.1", "logits"),
    ]
    assert [item.name for item in graph.initializer] == ["MatMul_1.1", "Add_1.1", "Clip_1.2"]
    assert [value.name for value in graph.output] == ["logits"]


def test_an_output_that_is_read_inside_too_keeps_one_name() -> None:
    model = exported("l")
    model.graph.output[0].name = "l.2"
    name_by_position(model, "logits")
    assert list(model.graph.node[1].output) == ["logits"]
    assert model.graph.node[2].input[0] == "logits"


def test_several_outputs_are_refused() -> None:
    model = exported("l")
    model.graph.output.append(helper.make_tensor_value_info("l.1", F, ["n", 3]))
    with pytest.raises(StageFailedError, match="has 2 outputs"):
        name_by_position(model, "logits")


def with_a_branch() -> onnx.ModelProto:
    """Adds b or what follows from it, which only the branches of an `If` read."""
    model = exported("l")
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.bool_(True), "yes"))
    graph.node.append(either("yes", ["l.out", "l.unread"], "z"))
    graph.output[0].name = "z"
    return model


def test_of_a_graph_that_holds_others_the_output_alone_is_renamed() -> None:
    model = with_a_branch()
    before, nodes = answer(model), [node.SerializeToString() for node in model.graph.node]
    for _ in range(2):
        name_by_position(model, "logits")
        assert [value.name for value in model.graph.output] == ["logits"]
        assert [node.SerializeToString() for node in model.graph.node[:-1]] == nodes
        np.testing.assert_array_equal(answer(model), before)
