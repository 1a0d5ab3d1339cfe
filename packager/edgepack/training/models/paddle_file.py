"""Reader of `model_state.pdparams`, the weights that `paddle.save` wrote, without Paddle.

The file is a pickle, and PaddleNLP would run code that it names. This reader knows the few names that arrays need, and
each only records its arguments, as in `torch_file`.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack.errors import StageFailedError
from edgepack.training.models.unpickling import Known, WeightsUnpickler, ordered

Array = npt.NDArray[Any]
_TYPES: Final = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
_NAMES: Final = "StructuredToParameterName@@"  # Paddle's own names of the weights


def read(file: Path) -> dict[str, Array]:
    """Every weight by name; bfloat16 as the uint16 of its bits, as Paddle has it.

    Raises:
        StageFailedError: the file asks for code, is damaged, or holds something else.
    """
    try:
        with file.open("rb") as stream:
            held = WeightsUnpickler(stream, _KNOWN).load()
        if not isinstance(held, dict):
            raise ValueError("it holds no dict of weights")
        arrays = {}
        left = file.stat().st_size  # names that share one array would each get a copy
        for name, value in held.items():
            if name != _NAMES:
                arrays[name] = _numbers(name, value)
                left -= arrays[name].nbytes
                if left < 0:
                    raise ValueError("its arrays are larger than the file")
        return arrays
    except Exception as error:  # a damaged pickle fails in many ways
        raise StageFailedError(
            f"{file} cannot be used",
            why=str(error) or type(error).__name__,
            fix="copy the model again from where it was made, and do not use one of an origin that you do not know",
        ) from error


class _Type:
    """Data type of an array, as `f4`; the state has the byte order."""

    def __init__(self, kind: Any, *_: Any) -> None:
        if type(kind) is not str or kind not in _TYPES:
            raise pickle.UnpicklingError("an array is not one of numbers")
        self.kind = kind

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise pickle.UnpicklingError("the numbers of an array are big-endian")


class _Array:
    """An array: shape, data type, order of its axes, and bytes."""

    parts: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self.parts = state


def _empty(*_: Any) -> _Array:
    """`_reconstruct`, which the state of the array follows."""
    return _Array()


def _from_buffer(raw: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """`_frombuffer`, of the pickle protocol 5."""
    made = _Array()
    made.parts = (1, shape, kind, order == "F", raw)
    return made


def _encode(text: Any, encoding: Any) -> str:
    """Bytes of the pickle protocol 2, still a text: `_numbers` copies it, which each call would do."""
    if type(text) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("it holds bytes in an unknown form")
    return text


# What paddle.save writes: a dict of NumPy arrays. NumPy 2 and other protocols of pickle have other names for the same.
_KNOWN: Final[Known] = {
    ("collections", "OrderedDict"): ordered,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


def _numbers(name: str, value: Any) -> Array:
    """A copy of the numbers of an array, in its shape."""
    if type(value) is tuple and len(value) == 2:  # with Paddle's own name
        value = value[1]
    if not isinstance(value, _Array) or type(value.parts) is not tuple or len(value.parts) != 5:
        raise ValueError(f"{name[:80]!r} in it is not a weight")
    _, shape, kind, by_columns, raw = value.parts
    if type(raw) is str:
        raw = raw.encode("latin1")
    if not isinstance(kind, _Type) or not isinstance(raw, bytes | bytearray) or type(shape) is not tuple:
        raise ValueError(f"{name[:80]!r} in it is not a weight")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{name[:80]!r} in it has no proper shape")
    flat = np.frombuffer(raw, f"<{kind.kind}")
    return np.array(flat.reshape(shape, order="F" if by_columns is True else "C"), order="C")
