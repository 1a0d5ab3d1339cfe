"""Folding keeps what the graph computes and drops what it need not compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit.onnx_graph.ernie_graphs import either

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.utils import fold_constants


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
