"""Which heads and neurons stay, and what is left of a layer's weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.training.models.width_pruning import Importance, Kept, choose, pruned

HEADS, SIZE, HIDDEN, NEURONS = 3, 2, 5, 4
SHAPES = {
    "self_attn.q_proj.weight": (HIDDEN, HEADS * SIZE),
    "self_attn.q_proj.bias": (HEADS * SIZE,),
    "self_attn.k_proj.weight": (HIDDEN, HEADS * SIZE),
    "self_attn.v_proj.bias": (HEADS * SIZE,),
    "self_attn.out_proj.weight": (HEADS * SIZE, HIDDEN),
    "self_attn.out_proj.bias": (HIDDEN,),
    "linear1.weight": (HIDDEN, NEURONS),
    "linear1.bias": (NEURONS,),
    "linear2.weight": (NEURONS, HIDDEN),
    "linear2.bias": (HIDDEN,),
    "norm1.weight": (HIDDEN,),
}


def of(*values: float) -> npt.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def kept(heads: list[int], neurons: list[int]) -> Kept:
    return Kept(np.array(heads), np.array(neurons))


def test_the_most_important_stay_in_their_order_and_of_equals_the_first() -> None:
    (one, other) = choose([Importance(of(3, 1, 2, 5), of(0, 9, 0, 8)), Importance(of(1, 2, 3, 4), of(4, 3, 2, 1))], 0.5)
    assert (one.heads.tolist(), one.neurons.tolist()) == ([0, 3], [1, 3])
    assert (other.heads.tolist(), other.neurons.tolist()) == ([2, 3], [0, 1])
    (found,) = choose([Importance(of(0, 1, 0, 0), of(0, 0, 0, 0))], 0.5)
    assert (found.heads.tolist(), found.neurons.tolist()) == ([0, 1], [0, 1])


@pytest.mark.parametrize(
    ("count", "width", "left"), [(12, 0.5, 6), (12, 0.75, 9), (5, 0.5, 3), (12, 0.29, 3), (12, 0.01, 1), (12, 1, 12)]
)
def test_how_many_stay(count: int, width: float, left: int) -> None:
    (found,) = choose([Importance(np.arange(float(count)), np.arange(100.0))], width)
    assert found.heads.tolist() == list(range(count - left, count))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.floats(0.01, 1))
def test_what_stays_is_at_least_as_important_as_what_goes(values: list[float], width: float) -> None:
    (found,) = choose([Importance(of(*values), of(1))], width)
    stays = found.heads.tolist()
    assert stays == sorted(set(stays))
    goes = [value for index, value in enumerate(values) if index not in stays]
    assert not goes or min(values[index] for index in stays) >= max(goes)


def test_what_is_left_of_the_weights() -> None:
    weights = {
        f"ernie.encoder.layers.{layer}.{name}": np.arange(np.prod(shape)).reshape(shape) + 100.0 * layer
        for layer in (0, 1)
        for name, shape in SHAPES.items()
    } | {"ernie.pooler.dense.weight": np.ones((HIDDEN, HIDDEN))}
    found = pruned(weights, [kept([0, 2], [1]), kept([1], [0, 3])], SIZE)
    assert found.keys() == weights.keys()
    columns, rows = [0, 1, 4, 5], weights["ernie.encoder.layers.0.self_attn.out_proj.weight"]
    first, second = "ernie.encoder.layers.0.", "ernie.encoder.layers.1."
    for name in ("q_proj.weight", "k_proj.weight", "q_proj.bias", "v_proj.bias"):
        name = f"{first}self_attn.{name}"
        assert np.array_equal(found[name], weights[name][..., columns])
    assert np.array_equal(found[f"{first}self_attn.out_proj.weight"], rows[columns])
    assert np.array_equal(found[f"{first}linear1.weight"], weights[f"{first}linear1.weight"][:, [1]])
    assert np.array_equal(found[f"{second}linear1.bias"], weights[f"{second}linear1.bias"][[0, 3]])
    assert np.array_equal(found[f"{second}linear2.weight"], weights[f"{second}linear2.weight"][[0, 3]])
    for name in (f"{first}self_attn.out_proj.bias", f"{first}linear2.bias", f"{second}norm1.weight"):
        assert np.array_equal(found[name], weights[name])
    assert np.array_equal(found["ernie.pooler.dense.weight"], weights["ernie.pooler.dense.weight"])
