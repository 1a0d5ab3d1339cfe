"""A graph in float16: as near to float32 as that can be, also where every node rounds, and what stays in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from tests.unit.onnx_graph.ernie_graphs import NAMES, PAD, exported, random_encoder, run, session, some_ids

from edgepack.bundle import golden
from edgepack.errors import StageFailedError
from edgepack.onnx_graph.encoder import Encoder, Linear
from edgepack.onnx_graph.float16 import half
from edgepack.onnx_graph.graph_writer import PLAIN, Layout, compose, fastest
from edgepack.onnx_graph.recognise import recognise
from edgepack_runtime.device import info


class LayerNormalization(OpRun):
    """Inside in float32, and what it gives rounded once; onnx's own one does not look at `stash_type`."""

    op_domain = ""

    def _run(self, x: Any, weight: Any, bias: Any, **attributes: Any) -> tuple[Any]:
        wide = x.astype(np.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(attributes["epsilon"]))
        return ((centred / deviation * weight + bias).astype(x.dtype),)


def rounding_everywhere(model: onnx.ModelProto, texts: Sequence[Any]) -> Any:
    """The logits of a device on which every node of `model` gives what the graph says, (texts, labels).

    `texts` are ids, (1, T) each. An x86 CPU computes a float16 graph in float32, and tells little of such a device.
    """
    device = ReferenceEvaluator(model, new_ops=[LayerNormalization])
    return np.concatenate([device.run(None, {"input_ids": ids})[0] for ids in texts])


LAYOUTS = {
    "plain": PLAIN,
    "merged": Layout(merged=True),
    "fastest": fastest(pairs=False),
    "fastest, with a mask": replace(fastest(pairs=False), unpadded=False),
    "fastest for pairs": fastest(pairs=True),
}
NEAR = 0.01  # of the spread of the logits


def stored(model: onnx.ModelProto) -> dict[str, Any]:
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


def both(encoder: Encoder, layout: Layout, ids: Any, types: Any = None) -> tuple[Any, Any]:
    """The logits in float32 and in float16."""
    graph = compose(encoder, layout)
    return run(graph, ids, types), run(half(graph), ids, types)


def apart(expected: Any, found: Any) -> float:
    """The largest difference, as a share of the spread of what was expected."""
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.ptp(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_float16_is_near_float32_and_half_its_size(name: str, layout: Layout) -> None:
    encoder = recognise(exported(name))
    ids, types = some_ids(20), np.random.default_rng(3).integers(0, 2, (20, 9))
    if not layout.unpadded:
        ids[1::2, 5:] = PAD
    assert 0 < apart(*both(encoder, layout, ids, types)) < NEAR
    graph = compose(encoder, layout)
    before, after = stored(graph), stored(half(graph))
    assert before.keys() == after.keys()
    floats = {key for key, value in before.items() if value.dtype == np.float32}
    in_float32 = {key for key, value in after.items() if value.dtype == np.float32}
    assert in_float32 == {"logits.weight", "logits.bias"} | ({"mask_value"} & floats)
    assert all(after[key].nbytes == before[key].nbytes // 2 for key in floats - in_float32)
    assert all(np.array_equal(after[key], before[key]) for key in before.keys() - floats)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 999),
    layers=st.integers(1, 3),
    heads=st.sampled_from([2, 3, 4]),
    size=st.sampled_from([8, 16]),
    pooler=st.booleans(),
    layout=st.sampled_from(list(LAYOUTS.values())),
    texts=st.integers(1, 4),
    tokens=st.integers(1, 32),
)
def test_any_encoder_and_any_text(
    seed: int, layers: int, heads: int, size: int, pooler: bool, layout: Layout, texts: int, tokens: int
) -> None:
    # Not of 4 values a row: some such rows hold nearly one value, and a norm makes much of how that was rounded.
    encoder = random_encoder(seed, layers=layers, heads=heads, size=size, pooler=pooler)
    ids = some_ids(texts, tokens, seed)
    expected, found = both(encoder, layout, ids, np.random.default_rng(seed).integers(0, 2, ids.shape))
    assert found.shape == ((texts, 3) if pooler else (texts, tokens, 3))
    assert np.abs(found - expected).max() < NEAR * max(1.0, float(np.abs(expected).max()))


def test_the_input_graph_and_the_types_at_its_ends_stay() -> None:
    graph = compose(random_encoder(), fastest(pairs=True))
    before = graph.SerializeToString(deterministic=True)
    made = half(graph)
    assert half(graph).SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)
    assert graph.SerializeToString(deterministic=True) == before
    assert list(made.graph.input) == list(graph.graph.input)
    assert list(made.graph.output) == list(graph.graph.output)
    assert [item.type for item in session(made).get_outputs()] == ["tensor(float)"]
    assert {item.domain for item in made.opset_import} == {""}
    assert all(node.name == node.output[0] or node.op_type == "Split" for node in made.graph.node)
    casts = [node.input[0] for node in made.graph.node if node.op_type == "Cast"]
    assert sorted(casts) == ["layers.0.scores", "layers.0.weights", "layers.1.scores", "layers.1.weights", "pooled"]


def changed(encoder: Encoder, name: str, **arrays: Any) -> Encoder:
    """With other arrays in the product called `name`."""

    def of(linear: Linear) -> Linear:
        return replace(linear, **arrays) if linear.name == name else linear

    return encoder.with_linears(of)


@pytest.mark.parametrize("value", [65_536.0, -1e9, float("inf"), float("nan")])
def test_a_weight_beyond_the_end_is_an_error_that_names_it(value: float) -> None:
    encoder = random_encoder()
    weight = encoder.layers[1].down.weight.copy()
    weight[3, 2] = value
    with pytest.raises(StageFailedError, match=r"layers\.1\.down\.weight does not fit into float16") as caught:
        half(compose(changed(encoder, "layers.1.down", weight=weight), PLAIN))
    assert "float16 ends at 65,504" in caught.value.why
    weight[3, 2] = 65_504.0
    half(compose(changed(encoder, "layers.1.down", weight=weight), PLAIN))


@pytest.mark.parametrize("mask", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_a_mask_hides_padding_however_low_it_is(mask: float) -> None:
    """In float16 the last two would be minus infinity; it is added in float32."""
    model = half(compose(random_encoder(mask=mask), replace(fastest(pairs=False), unpadded=False)))
    ids = some_ids(2, 9)
    padded = np.pad(ids, ((0, 0), (0, 4)), constant_values=PAD)
    assert np.abs(run(model, padded) - run(model, ids)).max() < 1e-3
    assert stored(model)["mask_value"].dtype == np.float32


def test_a_softmax_is_one_node_for_an_engine_that_has_none_in_float16(tmp_path: Path) -> None:
    """ONNX Runtime takes a float16 one apart into five nodes where it has no kernel for it, as on x86."""
    assert operators(optimized(half(compose(random_encoder(), fastest(pairs=False))), tmp_path)).count("Softmax") == 2


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What ONNX Runtime makes of a graph before it runs it."""
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimized.onnx"), 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.skipif(bool(info.half_flags()), reason="this CPU computes in float16")
def test_without_half_arithmetic_products_are_computed_in_float32(tmp_path: Path) -> None:
    """Why float16 does not ship for such a CPU: the weights are widened when the model is loaded."""
    ran = optimized(half(compose(random_encoder(), fastest(pairs=False))), tmp_path)
    kinds = {item.name: item.data_type for item in ran.graph.initializer}
    products = [node for node in ran.graph.node if node.op_type in ("MatMul", "Gemm", "FusedGemm")]
    assert len(products) == 2 * 4 + 1 + 2 + 2 * 2  # of weights, and of attention
    assert {kinds[node.input[1]] for node in products if node.input[1] in kinds} == {TensorProto.FLOAT}


def test_the_head_separates_labels_that_float16_would_not() -> None:
    """Two labels whose logits, some 40, differ by 0.01: in float16 the next number is 0.03 away."""
    encoder = random_encoder()
    weight = np.repeat(encoder.head.weight[:, :1], 3, axis=1)
    model = half(compose(changed(encoder, "head", weight=weight, bias=np.float32([40.0, 40.01, 40.0])), PLAIN))
    found = run(model, some_ids(20))
    assert np.all(found.argmax(axis=-1) == 1)
    assert np.any(found != found.astype(np.float16))


def test_rows_of_one_value_do_not_become_nan() -> None:
    """Their variance is 0, and the epsilon of 1e-12 would be 0 in float16."""
    encoder = random_encoder()
    found = encoder.embeddings
    constant = {name: np.full_like(getattr(found, name), 0.3) for name in ("words", "positions", "types", "task")}
    encoder = replace(encoder, embeddings=replace(found, **constant))
    expected, logits = both(encoder, fastest(pairs=False), some_ids())
    assert np.isfinite(logits).all()
    assert np.abs(logits - expected).max() < NEAR * float(np.abs(expected).max())
    norms = [node for node in half(compose(encoder, PLAIN)).graph.node if node.op_type == "LayerNormalization"]
    assert len(norms) == 1 + 2 * 2
    for node in norms:
        told = {item.name: item for item in node.attribute}
        assert (told["stash_type"].i, told["epsilon"].f) == (TensorProto.FLOAT, np.float32(1e-12))


def test_an_engine_may_take_subnormal_numbers_for_0() -> None:
    encoder = random_encoder()
    model = half(compose(encoder, fastest(pairs=False)))
    flushed = onnx.ModelProto()
    flushed.CopyFrom(model)
    below = 0
    for item in flushed.graph.initializer:
        value = numpy_helper.to_array(item).copy()
        if value.dtype == np.float16:
            small = np.abs(value) < np.finfo(np.float16).tiny
            below += int((small & (value != 0)).sum())
            value[small] = 0
            item.CopyFrom(numpy_helper.from_array(value, item.name))
    assert below > 0
    ids = some_ids(20)
    assert apart(run(compose(encoder, fastest(pairs=False)), ids), run(flushed, ids)) < NEAR


@pytest.mark.parametrize("seed", range(3))
def test_a_device_that_computes_in_float16_passes_the_self_test(seed: int) -> None:
    """And one that computes otherwise does not: golden logits come from here, where float16 may be float32."""
    encoder = random_encoder(seed, layers=4)
    graph = compose(encoder, fastest(pairs=False))
    small = half(graph)
    texts = [some_ids(1, tokens, seed) for tokens in (1, 4, 9, 16, 32)]
    float_logits, here = (np.concatenate([run(model, ids) for ids in texts]) for model in (graph, small))
    there = rounding_everywhere(small, texts)
    assert np.abs(rounding_everywhere(graph, texts) - float_logits).max() < 1e-4
    allowed = golden.tolerance("float16", here, float_logits)
    assert 0 < np.abs(there - here).max() < allowed
    broken = encoder.with_linears(lambda one: one.scaled(1.1) if "down" in one.name else one)
    wrong = np.concatenate([run(half(compose(broken, fastest(pairs=False))), ids) for ids in texts])
    assert np.abs(wrong - here).max() > allowed
