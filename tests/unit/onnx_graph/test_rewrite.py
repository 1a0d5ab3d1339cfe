"""Every rewrite is exact, alone and with the others, on texts of any length."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.onnx_graph.ernie_graphs import NAMES, PAD, VOCABULARY, exported, run, some_ids

from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.graph_writer import PLAIN, Layout, compose, fastest
from edgepack.onnx_graph.recognise import Unrecognised, recognise
from edgepack.onnx_graph.rewrite import TOLERANCE, rewrite

LAYOUTS = {
    "plain": PLAIN,
    **{field.name: Layout(**{field.name: 9 if field.name == "tokens" else True}) for field in fields(Layout)},
    "all of it": fastest(pairs=False, tokens=9),
    "all of it for pairs": fastest(pairs=True),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_rewritten_graph_gives_the_same_logits(name: str, layout: Layout) -> None:
    model = exported(name)
    _, rewritten = rewrite(model, layout)
    ids, types = some_ids(), np.random.default_rng(3).integers(0, 2, (5, 9))
    if not layout.unpadded:
        ids[1::2, 5:] = PAD
    if layout.one_text:
        types[:] = 0
    expected, found = run(model, ids, types), run(rewritten, ids, types)
    assert np.abs(expected).max() > 0.1
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE


@settings(max_examples=40)
@given(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=12), st.sampled_from(NAMES))
def test_any_text_gives_the_same_logits(tokens: list[int], name: str) -> None:
    model = exported(name)
    ids = np.array([tokens])
    rewritten = compose(recognise(model), fastest(pairs=False))
    assert np.abs(run(rewritten, ids) - run(model, ids)).max() <= TOLERANCE


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_less_is_computed_and_not_the_same_under_another_name() -> None:
    model = exported("texts-33")
    plain, fast = (compose(recognise(model), layout) for layout in (PLAIN, fastest(pairs=False)))
    # Of two layers with six products each: one for queries, keys and values, in the last two for them.
    assert operators(plain).count("MatMul") == 2 * 6 + 2 * 2 + 2
    assert operators(fast).count("MatMul") == 2 * 6 + 2 * 2 + 2 - 2 - 1
    assert [item.name for item in fast.graph.input] == ["input_ids"]
    assert "Equal" in operators(plain)
    assert "Equal" not in operators(fast)
    assert operators(fast).count("Gather") == 2  # the words, and the first token
    assert len(fast.graph.node) < len(plain.graph.node) < len(model.graph.node)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_graph_has_the_inputs_and_outputs_of_its_layout(layout: Layout) -> None:
    graph = compose(recognise(exported("texts-33")), layout).graph
    inputs = ["input_ids"] if layout.one_text else ["input_ids", "token_type_ids"]
    assert [item.name for item in graph.input] == inputs
    assert [item.name for item in graph.output] == ["logits"]
    assert all(node.name == node.output[0] or node.op_type == "Split" for node in graph.node)


def test_the_same_encoder_gives_the_same_bytes() -> None:
    one, other = (compose(recognise(exported("texts-33")), fastest(pairs=False)) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_what_was_misread_is_found_by_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the reading had gone wrong in a place that no pattern tells."""
    model = exported("texts-33")

    def misread(graph: onnx.ModelProto) -> Encoder:
        encoder = recognise(graph)
        return encoder.with_linears(lambda linear: linear.scaled(1.01 if linear.name == "layers.1.up" else 1.0))

    monkeypatch.setattr("edgepack.onnx_graph.rewrite.recognise", misread)
    with pytest.raises(Unrecognised, match=r"it was read as an ERNIE whose logits are .* from its own"):
        rewrite(model, fastest(pairs=False))
