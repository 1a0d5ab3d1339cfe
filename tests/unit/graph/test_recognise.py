"""ERNIE is read out of what both versions of paddle2onnx write, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.unit.graph.ernie_graphs import NAMES, exported

from edgepack.graph.compose import Layout
from edgepack.graph.patterns import Unrecognised
from edgepack.graph.recognise import recognise
from edgepack.graph.rewrite import rewrite

Change = Callable[[onnx.GraphProto], None]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_graph_computes_is_read_from_it(name: str) -> None:
    encoder = recognise(exported(name))
    assert [layer.attention.heads for layer in encoder.layers] == [2, 2]
    assert encoder.layers[0].attention.size == 4
    assert encoder.layers[0].attention.scale == pytest.approx(0.5)
    embeddings = encoder.embeddings
    assert (embeddings.words.shape, embeddings.positions.shape, embeddings.types.shape) == ((16, 8), (12, 8), (2, 8))
    assert embeddings.task.any()
    assert (encoder.pad_id, encoder.mask) == (0, -10_000.0)
    assert (encoder.pooler is None) == name.startswith("tokens")
    assert encoder.head.weight.shape == (8, 3)
    assert len({linear.name for linear in encoder.linears()}) == len(list(encoder.linears()))


@pytest.mark.parametrize("task", ["texts", "tokens"])
def test_both_lanes_write_the_same_encoder(task: str) -> None:
    one, other = (recognise(exported(f"{task}-{lane}")) for lane in ("26", "33"))
    for linear, twin in zip(one.linears(), other.linears(), strict=True):
        assert linear.name == twin.name
        assert linear.weight.shape == twin.weight.shape


def nodes(graph: onnx.GraphProto, operator: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == operator]


def constant(graph: onnx.GraphProto, name: str) -> onnx.TensorProto:
    return next(item for item in graph.initializer if item.name == name)


def replace(graph: onnx.GraphProto, name: str, value: object) -> None:
    item = constant(graph, name)
    item.CopyFrom(numpy_helper.from_array(np.asarray(value, dtype=numpy_helper.to_array(item).dtype), name))


def another_operator(operator: str, instead: str, which: int = 0) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        nodes(graph, operator)[which].op_type = instead

    return change


def other_axes(graph: onnx.GraphProto) -> None:
    nodes(graph, "Transpose")[1].attribute[0].ints[:] = [0, 2, 3, 1]


def another_half(graph: onnx.GraphProto) -> None:
    replace(graph, nodes(graph, "Mul")[-1].input[1], np.float32(0.6))


def a_residual_of_the_embeddings(graph: onnx.GraphProto) -> None:
    """The second layer adds what the first one read."""
    first, last = nodes(graph, "LayerNormalization")[0].output[0], nodes(graph, "LayerNormalization")[-2]
    total = next(node for node in graph.node if node.output[0] == last.input[0])
    place = next(i for i, name in enumerate(total.input) if name.startswith("LayerNormalization"))
    total.input[place] = first


def an_own_mask(graph: onnx.GraphProto) -> None:
    """The second layer's mask is made of the first one's, and is another."""
    mask = nodes(graph, "Unsqueeze")[-1].output[0]
    second = [node for node in nodes(graph, "Add") if mask in node.input][1]
    place = list(graph.node).index(second)
    graph.node.insert(place, onnx.helper.make_node("Abs", [mask], ["another"], name="another"))
    second.input[list(second.input).index(mask)] = "another"


def positions_from_one(graph: onnx.GraphProto) -> None:
    """Indices 1, 2, 3: the sum itself, without what is subtracted from it."""
    total = nodes(graph, "CumSum")[0].output[0]
    gather = next(node for node in nodes(graph, "Gather") if node.input[1] == nodes(graph, "Sub")[0].output[0])
    gather.input[1] = total


def a_mask_of_another_size(graph: onnx.GraphProto) -> None:
    compared = nodes(graph, "Equal")[0]
    compared.op_type = "Less"


def another_token(graph: onnx.GraphProto) -> None:
    """The second token is pooled, not the first."""
    cut = nodes(graph, "Slice")[-1]
    replace(graph, cut.input[1], [1])
    replace(graph, cut.input[2], [2])


CHANGES: dict[str, Change] = {
    "another activation": another_operator("Erf", "Tanh"),
    "another pooler": another_operator("Tanh", "Sigmoid"),
    "a difference for a sum": another_operator("Add", "Sub", -1),
    "no softmax": another_operator("Softmax", "LogSoftmax"),
    "heads turned": other_axes,
    "another half": another_half,
    "another residual": a_residual_of_the_embeddings,
    "several masks": an_own_mask,
    "positions from one": positions_from_one,
    "another comparison": a_mask_of_another_size,
    "another token": another_token,
}


@pytest.mark.parametrize("lane", ["26", "33"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_no_ernie_is_not_rewritten(change: Change, lane: str) -> None:
    model = exported(f"texts-{lane}")
    change(model.graph)
    with pytest.raises(Unrecognised, match=r"is not|its "):
        rewrite(model, Layout())


def test_the_reason_names_the_tensor() -> None:
    model = exported("texts-33")
    CHANGES["another activation"](model.graph)
    with pytest.raises(Unrecognised) as caught:
        recognise(model)
    assert str(caught.value) == "the tensor Mul_5, made by Mul, is not the exact GELU"


def test_operands_may_stand_in_any_order() -> None:
    model = exported("texts-33")
    for operator in ("Add", "Mul"):
        for node in nodes(model.graph, operator):
            node.input[:] = reversed(node.input)
    assert len(recognise(model).layers) == 2
