"""What `torch.save` writes, put together opcode by opcode: torch itself is not installed where edgepack is tested."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_KINDS = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage"}


def named(module: str, name: str) -> bytes:
    """A class or function."""
    return f"c{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def group(*parts: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(parts) + b"t"


def called(function: bytes, *arguments: bytes) -> bytes:
    return function + group(*arguments) + b"R"


def storage(key: str, length: int, kind: str = "FloatStorage", *view: bytes) -> bytes:
    """A reference to numbers that lie outside of the pickle."""
    return group(text("storage"), named("torch", kind), text(key), text("cpu"), number(length), *view) + b"Q"


def tensor(stored: bytes, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> bytes:
    shape, steps = (group(*map(number, counts)) for counts in (size, stride))
    hooks = called(named("collections", "OrderedDict"))
    return called(named("torch._utils", "_rebuild_tensor_v2"), stored, number(offset), shape, steps, b"\x89", hooks)


def pickled(values: Mapping[str, bytes]) -> bytes:
    """The pickle of a dict."""
    items = b"".join(text(name) + value for name, value in values.items())
    return b"\x80\x02}(" + items + b"u."


def write_archive(file: Path, pickle: bytes, storages: Mapping[str, bytes], compression: int = 0) -> Path:
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("model/data.pkl", pickle)
        archive.writestr("model/byteorder", b"little")
        for key, raw in storages.items():
            archive.writestr(f"model/data/{key}", raw)
    return file


def save(weights: Mapping[str, Array], file: Path) -> Path:
    """`torch.save` of a state dict, each tensor with a storage of its own."""
    values, storages = {}, {}
    for key, (name, weight) in enumerate(weights.items()):
        steps = [step // weight.itemsize for step in np.ascontiguousarray(weight).strides]
        stored = storage(str(key), weight.size, _KINDS[str(weight.dtype)])
        values[name] = tensor(stored, weight.shape, steps)
        storages[str(key)] = weight.tobytes()
    return write_archive(file, pickled(values), storages)
