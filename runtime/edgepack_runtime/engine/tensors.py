"""Tensors that go into a graph and come out of it, without NumPy. NumPy reads and gives them as its own arrays."""

from __future__ import annotations

import math
import struct
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from edgepack_runtime.errors import StageFailedError

# Type of the elements: (struct and memoryview format, bytes of an element, ONNXTensorElementDataType).
TYPES: Mapping[str, Tuple[str, int, int]] = {
    "float32": ("f", 4, 1),
    "uint8": ("B", 1, 2),
    "int8": ("b", 1, 3),
    "uint16": ("H", 2, 4),
    "int16": ("h", 2, 5),
    "int32": ("i", 4, 6),
    "int64": ("q", 8, 7),
    "bool": ("?", 1, 9),
    "float16": ("e", 2, 10),
    "float64": ("d", 8, 11),
    "uint32": ("I", 4, 12),
    "uint64": ("Q", 8, 13),
}
_BY_NUMBER = {number: name for name, (_, _, number) in TYPES.items()}
# The kinds of buffer formats: native ones have other letters for the same type, as `l` for int64.
_KINDS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"), **dict.fromkeys("efd", "float")}


class Tensor:
    """An array: `shape`, the type of its elements as NumPy calls it (`dtype`), and its bytes in row-major order.

    `numpy.asarray(tensor)` is an array over the same memory; `tolist()` needs no NumPy.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, data: bytes, shape: Sequence[int], dtype: str) -> None:
        self.data, self.shape, self.dtype = data, tuple(shape), dtype

    def flat(self) -> Tuple[Any, ...]:
        """The elements in row-major order."""
        return struct.unpack(f"<{math.prod(self.shape)}{TYPES[self.dtype][0]}", self.data)

    def tolist(self) -> Any:
        """The elements as nested lists; a number if the tensor has no axes."""
        return _nested(self.flat(), self.shape) if self.shape else self.flat()[0]

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """NumPy's array interface, version 3."""
        letter, size, _ = TYPES[self.dtype]
        kind = "b" if letter == "?" else {"uint": "u", "int": "i", "float": "f"}[_KINDS[letter]]
        return {"version": 3, "shape": self.shape, "typestr": f"<{kind}{size}", "data": self.data}

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype!r})"


def _nested(flat: Sequence[Any], shape: Sequence[int]) -> List[Any]:
    if len(shape) == 1:
        return list(flat)
    step = math.prod(shape[1:])
    return [_nested(flat[number * step : (number + 1) * step], shape[1:]) for number in range(shape[0])]


def number_of(dtype: str) -> int:
    """ONNX Runtime's number of an element type."""
    return TYPES[dtype][2]


def dtype_of(number: int) -> str:
    """The element type with ONNX Runtime's `number`; `type 8` for one that edgepack does not know, such as texts."""
    return _BY_NUMBER.get(number, f"type {number}")


def size_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * TYPES[dtype][1]


def as_tensor(value: Any, dtype: str, where: str) -> Tensor:
    """`value` as a tensor with elements of `dtype`.

    Args:
        value: a `Tensor`, an object with the buffer protocol such as a NumPy array, or nested lists of numbers.
        where: name of the input, for messages.

    Raises:
        StageFailedError: it is none of these, has elements of another type, or lists of different lengths.
    """
    if isinstance(value, Tensor):
        return _checked(value, dtype, where)
    if dtype not in TYPES:
        raise _unfit(where, f"the graph takes elements of {dtype}, which edgepack does not pass on")
    if isinstance(value, (list, tuple, int, float)):
        try:
            return from_lists(value, dtype)
        except ValueError as error:
            raise _unfit(where, str(error)) from error
    try:
        view = memoryview(value)
    except (TypeError, ValueError):  # the latter for arrays of dates
        raise _unfit(where, f"the handler gave a {type(value).__name__}, not an array or lists of numbers") from None
    letter = view.format.lstrip("@=<")
    kind = "bool" if letter == "?" else f"{_KINDS.get(letter, letter)}{8 * view.itemsize}"
    return _checked(Tensor(view.tobytes(), view.shape or (), kind), dtype, where)


def _checked(tensor: Tensor, dtype: str, where: str) -> Tensor:
    if tensor.dtype != dtype:
        raise _unfit(where, f"the graph takes {dtype}, and the handler gave {tensor.dtype}")
    return tensor


def from_lists(value: Any, dtype: str) -> Tensor:
    """Nested lists of numbers, or a number, as a tensor with elements of `dtype`.

    Raises:
        ValueError: lists have different lengths, or an element is not of `dtype`.
    """
    shape: List[int] = []
    flat: List[Any] = [value]
    while flat and isinstance(flat[0], (list, tuple)):
        size = len(flat[0])
        if any(not isinstance(one, (list, tuple)) or len(one) != size for one in flat):
            raise ValueError("its lists have different lengths")
        shape.append(size)
        flat = [item for one in flat for item in one]
    if dtype == "bool" and not all(item in (0, 1) for item in flat):  # `struct` takes any value
        raise ValueError("its values are not all bool")
    try:
        return Tensor(struct.pack(f"<{len(flat)}{TYPES[dtype][0]}", *flat), shape, dtype)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"its values are not all {dtype}: {error}") from error


def _unfit(where: str, why: str) -> StageFailedError:
    return StageFailedError(f"the handler's input {where!r} does not fit the graph", why=why, fix="correct `prepare`")
