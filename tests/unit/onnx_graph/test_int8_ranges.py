"""Parts that are INT8 or float as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from tests.unit.onnx_graph.ernie_graphs import NAMES, exported, ranged, run, some_ids

from edgepack.onnx_graph.graph_writer import compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack.onnx_graph.int8_ranges import WORDS, in_float, int8_parts
from edgepack.onnx_graph.recognise import recognise


def test_queries_keys_and_values_are_one_part_and_a_float_encoder_has_none() -> None:
    parts = int8_parts(ranged())
    assert parts[0] == WORDS
    assert parts[1:5] == tuple(f"layers.0.{role}" for role in ("query_key_value", "output", "up", "down"))
    assert parts[-2:] == ("pooler", "head")
    assert len(parts) == 1 + 2 * 4 + 2
    assert int8_parts(recognise(exported("texts-33"))) == ()


@pytest.mark.parametrize("part", int8_parts(ranged()))
def test_one_part_in_float_leaves_the_others_int8(part: str) -> None:
    mixed = in_float(ranged(), [part])
    assert set(int8_parts(mixed)) == set(int8_parts(ranged())) - {part}
    graph = compose(mixed, fastest(pairs=False), OrtCpuForm()).graph
    count = sum(item.data_type == TensorProto.INT8 and len(item.dims) == 2 for item in graph.initializer)
    whole = compose(ranged(), fastest(pairs=False), OrtCpuForm()).graph
    before = sum(item.data_type == TensorProto.INT8 and len(item.dims) == 2 for item in whole.initializer)
    # The last layer computes the queries of the first token by themselves, so that there the part is two products.
    assert before - count == (2 if part == "layers.1.query_key_value" else 1)


@pytest.mark.parametrize("name", NAMES)
def test_with_all_parts_in_float_nothing_is_lost(name: str) -> None:
    layout, ids = fastest(pairs=False), some_ids()
    encoder = ranged(name)
    back = compose(in_float(encoder, int8_parts(encoder)), layout, OrtCpuForm())
    assert np.array_equal(run(back, ids), run(compose(encoder, layout), ids))
