"""ERNIE is read out of what both versions of paddle2onnx write, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.sweeps import sample
from tests.unit.onnx_graph.ernie_graphs import NAMES, exported, run, some_ids

from edgepack.onnx_graph.graph_writer import Layout
from edgepack.onnx_graph.recognise import IDS, TYPES, Unrecognised, recognise
from edgepack.onnx_graph.rewrite import rewrite
from edgepack.onnx_graph.utils import GraphView, evaluate

SEEDS: Final = 8  # mutants of each kind and graph
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


@pytest.mark.parametrize("paddle", ["26", "33"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_no_ernie_is_not_rewritten(change: Change, paddle: str) -> None:
    model = exported(f"texts-{paddle}")
    change(model.graph)
    with pytest.raises(Unrecognised, match=r"is not|its "):
        rewrite(model, Layout())


def task_ids_as_a_constant(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with `[[0]]` for the ids of the task, which are all zero anyway."""
    graph = model.graph
    task = next(node for node in nodes(graph, "Gather") if is_zero(model, node.input[1]))
    task.input[1] = "task_ids"
    graph.initializer.append(numpy_helper.from_array(np.int64([[0]]), "task_ids"))
    return model


def is_zero(model: onnx.ModelProto, tensor: str) -> bool:
    """Whether a tensor of ids is computed in the graph, and comes out as zeros."""
    view = GraphView(model)
    if tensor not in view.makers or tensor in (IDS, TYPES):
        return False
    tokens = np.ones((2, 5), np.int64)
    found = evaluate(view, [tensor], {IDS: tokens, TYPES: tokens})[0]
    return found.ndim == 2 and not found.any()


@pytest.mark.parametrize("name", NAMES)
def test_task_ids_that_were_folded_are_understood(name: str) -> None:
    expected = recognise(exported(name)).embeddings.task
    model = task_ids_as_a_constant(exported(name))
    np.testing.assert_array_equal(run(model, some_ids()), run(exported(name), some_ids()))
    encoder, _ = rewrite(model, Layout())
    np.testing.assert_array_equal(encoder.embeddings.task, expected)


def without_an_operand(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    del any_of(graph.node, random).input[-1:]


def an_unknown_operator(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    any_of(graph.node, random).op_type = "NoSuchOperator"


def an_operator_of_another(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    any_of(graph.node, random).op_type = any_of(graph.node, random).op_type


def another_operand(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """Any tensor of the graph, an earlier or a later one or a constant, in place of an operand."""
    node = any_of([node for node in graph.node if node.input], random)
    names = [name for other in graph.node for name in (*other.input, *other.output)]
    node.input[int(random.integers(len(node.input)))] = any_of(names, random)


def an_operand_of_nowhere(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = any_of([node for node in graph.node if node.input], random)
    node.input[int(random.integers(len(node.input)))] = "nowhere"


def without_a_node(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    graph.node.remove(any_of(graph.node, random))


def without_attributes(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    del any_of([node for node in graph.node if node.attribute], random).attribute[:]


def another_constant(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """Of another shape or type, cut or emptied."""
    item = any_of(graph.initializer, random)
    value = numpy_helper.to_array(item)
    flat = value.reshape(-1)
    others = [value[None], flat, flat[:0], *([value[:1], value[:0]] if value.ndim else [])]
    others += [value + np.asarray(1, value.dtype), -value, value.astype(np.float64), value.astype(np.int32)]
    item.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(any_of(others, random)), item.name))


def without_a_constant(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    graph.initializer.remove(any_of(graph.initializer, random))


def without_an_output(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    del graph.output[:]


def another_output(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    graph.output[0].name = any_of(any_of(graph.node, random).output, random)


def a_circle(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """The lowest LayerNorm reads what the highest makes."""
    norms = nodes(graph, "LayerNormalization")
    norms[0].input[0] = norms[-1].output[0]


def a_circle_of_layers(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """The lowest LayerNorm reads the sum that one further up does."""
    norms = nodes(graph, "LayerNormalization")
    norms[0].input[0] = norms[int(random.integers(1, len(norms)))].input[0]


def another_domain(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    any_of(graph.node, random).domain = "com.microsoft"


def a_node_that_holds_a_graph(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    inner = onnx.helper.make_graph([], "inner", [], [])
    any_of(graph.node, random).attribute.append(onnx.helper.make_attribute("body", inner))


def any_of(some: Sequence[Any], random: np.random.Generator) -> Any:
    return some[int(random.integers(len(some)))]


MUTANTS: tuple[Callable[[onnx.GraphProto, np.random.Generator], None], ...] = (
    without_an_operand, an_unknown_operator, an_operator_of_another, another_operand, an_operand_of_nowhere,
    without_a_node, without_attributes, another_constant, without_a_constant, without_an_output, another_output,
    a_circle, a_circle_of_layers, another_domain, a_node_that_holds_a_graph,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_whatever_a_graph_is_it_is_understood_or_not_recognised(
    mutate: Callable[[onnx.GraphProto, np.random.Generator], None], name: str
) -> None:
    """Valid or not: nothing but `Unrecognised` is raised, and what is rewritten gives the logits of the mutant."""
    for seed in sample(range(SEEDS), 4):
        model = exported(name)
        mutate(model.graph, np.random.default_rng(seed))
        try:
            _, rewritten = rewrite(model, Layout())
        except Unrecognised as reason:
            assert str(reason)
        else:
            np.testing.assert_allclose(run(rewritten, some_ids()), run(model, some_ids()), atol=1e-4)


def test_an_error_in_reading_is_the_reason() -> None:
    model = exported("texts-33")
    an_operand_of_nowhere(model.graph, np.random.default_rng(0))
    del model.graph.output[:]
    with pytest.raises(Unrecognised, match="it cannot be read: IndexError: list index"):
        recognise(model)


def test_an_error_in_writing_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> onnx.ModelProto:
        raise ValueError("a fault of ours")

    monkeypatch.setattr("edgepack.onnx_graph.rewrite.compose", broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        rewrite(exported("texts-33"), Layout())


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
