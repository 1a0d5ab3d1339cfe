"""INT8 is int8 in the file, close to float, and quantizes no tensor twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from tests.unit.onnx_graph.ernie_graphs import NAMES, exported, ranged, run, scales_of, some_ids

from edgepack.artifacts import LinearScales
from edgepack.errors import StageFailedError
from edgepack.onnx_graph.encoder import Embeddings, Linear, Range
from edgepack.onnx_graph.graph_writer import PLAIN, Layout, compose, fastest
from edgepack.onnx_graph.int8_operators import FloatForm, OrtCpuForm
from edgepack.onnx_graph.int8_ranges import (
    INT8_MAX,
    REDUCED_MAX,
    column_steps,
    quantize_columns,
    quantize_rows,
    uint8_grid,
    with_ranges,
)
from edgepack.onnx_graph.recognise import recognise
from edgepack.onnx_graph.utils import Writer

LAYOUTS = {"plain": PLAIN, "merged": Layout(merged=True), "fastest": fastest(pairs=False)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.usefixtures("eight_bits")
def test_int8_is_close_to_float_and_is_int8(name: str, layout: Layout) -> None:
    encoder = recognise(exported(name))
    ids = some_ids(20)
    small = compose(with_ranges(encoder, scales_of(encoder), embeddings=True), layout, OrtCpuForm())
    expected, found = run(compose(encoder, layout), ids), run(small, ids)
    spread = float(expected.max() - expected.min())
    assert 0 < np.abs(found - expected).max() < 0.1 * spread
    matrices = [item for item in small.graph.initializer if len(item.dims) == 2 and item.dims[0] * item.dims[1] >= 24]
    kept_float = {"positions.table", "types.table"}
    assert {item.name for item in matrices if item.data_type == TensorProto.FLOAT} <= kept_float
    assert "words.int8" in {item.name for item in matrices if item.data_type == TensorProto.INT8}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_reduced_weights_have_seven_bits_and_mean_the_same(layout: Layout) -> None:
    encoder, ids = ranged(), some_ids(20)
    small = compose(encoder, layout, OrtCpuForm(reduced=True))
    weights = [numpy_helper.to_array(item) for item in small.graph.initializer if item.data_type == TensorProto.INT8]
    products = [weight for weight in weights if weight.ndim == 2 and weight.shape != encoder.embeddings.words.shape]
    assert {int(np.abs(weight).max()) for weight in products} == {REDUCED_MAX}
    found, meant = run(small, ids), run(compose(encoder, layout, RoundedForm("reduced")), ids)
    assert np.abs(found - meant).max() < 0.01 * float(meant.max() - meant.min())


def test_a_tensor_with_several_readers_is_quantized_once() -> None:
    encoder = recognise(exported("texts-33"))
    scales = scales_of(encoder)
    scales[0] = replace(scales[0], activation=(-6.0, 9.0))  # as if an observer of the queries had seen more
    graph = compose(with_ranges(encoder, scales, embeddings=True), PLAIN, OrtCpuForm()).graph
    quantized = [node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantized) == len(set(quantized)) == 2 * 4 + 2  # of each layer, of pooler and head
    first = with_ranges(encoder, scales, embeddings=True).layers[0].attention
    seen = {part.ranges.activation for part in (first.query, first.key, first.value) if part.ranges is not None}
    assert seen == {Range(-6.0, 9.0)}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.usefixtures("eight_bits")
def test_ranges_may_be_found_in_each_run(layout: Layout) -> None:
    encoder = recognise(exported("texts-33"))
    scales = [replace(item, activation=None) for item in scales_of(encoder)]
    small = compose(with_ranges(encoder, scales, embeddings=True), layout, OrtCpuForm())
    ids = some_ids(1)
    expected, found = run(compose(encoder, layout), ids), run(small, ids)
    assert 0 < np.abs(found - expected).max() < 0.1 * float(expected.max() - expected.min())
    assert "QuantizeLinear" not in {node.op_type for node in small.graph.node}
    quantized = [node.input[0] for node in small.graph.node if node.op_type == "DynamicQuantizeLinear"]
    assert len(quantized) == len(set(quantized)) >= 2 * 4 + 2


def test_products_without_ranges_stay_float() -> None:
    encoder = ranged(embeddings=False)
    mixed = encoder.with_linears(lambda one: replace(one, ranges=None) if one.name == "layers.0.up" else one)
    graph = compose(mixed, PLAIN, OrtCpuForm()).graph
    stored = {item.name: item.data_type for item in graph.initializer}
    assert stored["layers.0.up.weight"] == TensorProto.FLOAT
    assert stored["layers.1.up.int8"] == TensorProto.INT8
    assert stored["words.table"] == TensorProto.FLOAT
    assert [node.op_type for node in graph.node].count("MatMulIntegerToFloat") == 2 * 6 + 2 - 1


def test_queries_of_which_some_stay_float_are_one_float_product() -> None:
    mixed = ranged("tokens-33").with_linears(
        lambda one: replace(one, ranges=None) if one.name == "layers.0.key" else one
    )
    stored = {item.name for item in compose(mixed, Layout(merged=True), OrtCpuForm()).graph.initializer}
    assert "layers.0.query_key_value.weight" in stored
    assert "layers.1.query_key_value.int8" in stored


def test_a_scale_in_the_weights_does_not_change_how_they_are_rounded() -> None:
    """The steps are scaled with the weights: the same int8 numbers, and the same sums."""
    weights = []
    for layout in (PLAIN, Layout(scaled=True)):
        stored = {item.name: item.raw_data for item in compose(ranged(), layout, OrtCpuForm()).graph.initializer}
        weights.append(stored["layers.0.query.int8"])
    assert weights[0] == weights[1]


def test_products_without_ranges_and_ranges_without_a_product_are_errors() -> None:
    encoder = recognise(exported("texts-33"))
    with pytest.raises(StageFailedError, match=r"no ranges were observed for head"):
        with_ranges(encoder, scales_of(encoder)[:-1], embeddings=True)
    foreign = LinearScales("lost.layer", "0" * 64, (-1.0, 1.0), (1.0,))
    with pytest.raises(StageFailedError) as caught:
        with_ranges(encoder, [*scales_of(encoder), foreign], embeddings=True)
    assert caught.value.why == "lost.layer"


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (-2.0, 0.0), (-1e-3, 1e3), (2.0, 5.0), (-5.0, -2.0)]
)
def test_zero_and_both_ends_lie_on_the_grid(low: float, high: float) -> None:
    seen = Range(0.0, 0.0).union(Range(low, high))
    step, zero_point = (float(value) for value in uint8_grid(seen))
    assert zero_point == int(zero_point)
    assert 0 <= zero_point <= 255
    for end in (low, 0.0, high):
        nearest = np.clip(np.round(end / step) + zero_point, 0, 255) - zero_point
        assert abs(nearest * step - end) <= (0.51 * step if end else 0.0)


def test_rounding_error_is_at_most_half_a_step_and_of_zeros_none() -> None:
    weight = np.random.default_rng(3).normal(0, 1, (64, 8)).astype(np.float32)
    steps = column_steps(np.abs(weight).max(axis=0))
    assert np.all(np.abs(quantize_columns(weight, steps) * steps - weight) <= 0.5001 * steps)
    rows, row_steps = quantize_rows(weight)
    assert row_steps.shape == (64, 1)
    assert np.all(np.abs(rows * row_steps - weight) <= 0.5001 * row_steps)
    rows, steps = quantize_rows(np.zeros((2, 4), dtype=np.float32))
    assert not rows.any()
    assert np.isfinite(steps).all()


class RoundedForm(FloatForm):
    """What INT8 is meant to compute, by arithmetic of numpy on the weights and clipped rounding in the graph."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        assert linear.ranges is not None and linear.ranges.activation is not None
        step, zero = uint8_grid(linear.ranges.activation)
        name = f"{linear.name}.fake"
        number = writer.node(f"{name}.number", "Div", source, writer.constant(f"{name}.step", step))
        whole = writer.node(f"{name}.round", "Round", number)
        shifted = writer.node(f"{name}.shifted", "Add", whole, writer.constant(f"{name}.zero", float(zero)))
        ends = writer.constant(f"{name}.low", 0.0), writer.constant(f"{name}.high", 255.0)
        clipped = writer.node(f"{name}.clipped", "Clip", shifted, *ends)
        back = writer.node(f"{name}.back", "Sub", clipped, f"{name}.zero")
        rounded = writer.node(f"{name}.rounded", "Mul", back, f"{name}.step")
        largest = REDUCED_MAX if self.kind == "reduced" else INT8_MAX
        steps = column_steps(linear.ranges.columns, largest)
        weight = np.clip(np.round(linear.weight / steps), -largest, largest).astype(np.float32) * steps
        return super().linear(writer, rounded, replace(linear, weight=weight))

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        rows, steps = quantize_rows(embeddings.words)
        return super().words(writer, ids, replace(embeddings, words=rows * steps))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("eight_bits")
def test_int8_computes_what_rounding_to_the_grids_means(name: str, layout: Layout) -> None:
    encoder, ids = ranged(name), some_ids(20)
    found, meant = (run(compose(encoder, layout, form), ids) for form in (OrtCpuForm(), RoundedForm("uint8")))
    # A sum in another order may fall on the other side of a rounding; that is a step of one number, not an error.
    assert np.abs(found - meant).max() < 0.02 * float(meant.max() - meant.min())


def test_reduced_weights_do_not_fill_16_bits() -> None:
    """Two neighbouring products of a CPU without VNNI are added in 16 bits, saturating."""
    assert 2 * 255 * REDUCED_MAX <= np.iinfo(np.int16).max < 2 * 255 * INT8_MAX
