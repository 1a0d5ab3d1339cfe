"""Tensors between a handler and its graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from edgepack_runtime.engine import tensors
from edgepack_runtime.engine.tensors import TYPES, Tensor, as_tensor
from edgepack_runtime.errors import StageFailedError

Array = NDArray[Any]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


@st.composite
def arrays_of_any_layout(draw: st.DrawFn) -> Array:
    """An array of a type that graphs read, perhaps one that is not contiguous or not writeable."""
    dtype = draw(st.sampled_from(sorted(TYPES)))
    array: Array = draw(arrays.arrays(dtype, draw(SHAPES)))
    if array.ndim:
        array = draw(
            st.sampled_from([array, array.T, array[::-1], array[..., ::2], np.asfortranarray(array), array[:, None]])
        )
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


def same(first: Any, second: Any) -> bool:
    return bool(np.array_equal(np.asarray(first), np.asarray(second), equal_nan=np.asarray(second).dtype.kind == "f"))


@given(arrays_of_any_layout())
def test_an_array_of_any_type_and_layout_keeps_its_elements(array: Array) -> None:
    tensor = as_tensor(array, array.dtype.name, "x")
    assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype.name)
    assert len(tensor.data) == tensors.size_bytes(array.shape, array.dtype.name)
    back = np.asarray(tensor)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert same(back, array)
    assert same(np.array(tensor.tolist(), array.dtype).reshape(array.shape), array)
    assert as_tensor(tensor, array.dtype.name, "x") is tensor


@given(arrays_of_any_layout())
def test_nested_lists_are_as_the_array_of_them(array: Array) -> None:
    tensor = as_tensor(array.tolist(), array.dtype.name, "x")
    shape = array.shape if array.size else array.shape[: array.shape.index(0) + 1]  # below an empty list is nothing
    assert tensor.shape == shape
    assert same(np.asarray(tensor).reshape(array.shape), array)


def test_other_buffers_are_read_too() -> None:
    import array as standard

    assert as_tensor(standard.array("f", [1.5, 2.5]), "float32", "x").tolist() == [1.5, 2.5]
    assert as_tensor(standard.array("l", [1, -2]), "int64", "x").tolist() == [1, -2]
    assert as_tensor(b"\x01\xff", "uint8", "x").tolist() == [1, 255]
    assert as_tensor(np.float32(2.5), "float32", "x").shape == ()
    assert as_tensor(7, "int64", "x").tolist() == 7
    assert as_tensor((True, False), "bool", "x").tolist() == [True, False]


@pytest.mark.parametrize(
    ("value", "dtype", "words"),
    [
        (np.zeros(2), "float32", "takes float32, and the handler gave float64"),
        (np.zeros(2, ">f4"), "float32", "takes float32, and the handler gave"),
        (np.zeros(2, "complex64"), "float32", "takes float32, and the handler gave"),
        (Tensor(b"\0" * 8, (1,), "int64"), "int32", "takes int32, and the handler gave int64"),
        ([[1, 2], [3]], "int64", "lists have different lengths"),
        ([[1, 2], 3], "int64", "lists have different lengths"),
        ([1, [2]], "int64", "are not all int64"),
        ([1.5], "int64", "are not all int64"),
        ([300], "uint8", "are not all uint8"),
        ([-1], "uint64", "are not all uint64"),
        ([2**64], "int64", "are not all int64"),
        ([1e39], "float32", "are not all float32"),
        ([70000.0], "float16", "are not all float16"),
        (["a"], "float32", "are not all float32"),
        (["no"], "bool", "are not all bool"),
        ([None], "float32", "are not all float32"),
        ("text", "float32", "gave a str"),
        (None, "float32", "gave a NoneType"),
        ({"x": 1}, "float32", "gave a dict"),
        (np.array([None]), "float32", "handler gave"),
        (np.array(["a"]), "float32", "handler gave"),
        (np.array(["2026-01-01"], "datetime64[D]"), "int64", "gave a ndarray"),
        ([1], "type 8", "type 8, which edgepack does not pass on"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_input(value: object, dtype: str, words: str) -> None:
    with pytest.raises(StageFailedError, match="input 'pixels' does not fit") as caught:
        as_tensor(value, dtype, "pixels")
    assert words in str(caught.value)


def test_the_numbers_of_types_are_those_of_onnx() -> None:
    from onnx import TensorProto, helper

    for name in TYPES:
        number = tensors.number_of(name)
        assert helper.tensor_dtype_to_np_dtype(number) == np.dtype(name)
        assert tensors.dtype_of(number) == name
    assert tensors.dtype_of(TensorProto.STRING) == "type 8"


def test_floats_that_are_no_numbers_pass() -> None:
    found = as_tensor([math.inf, -math.inf, math.nan], "float32", "x").tolist()
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
