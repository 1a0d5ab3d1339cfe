"""Reader of weights that `torch.save` wrote, without torch and without Paddle.

The file is a pickle. This reader knows four names, those of tensors, and each only records its arguments. It reads both
formats of torch: zip archives (since torch 1.6) and the earlier sequence of pickles.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edgepack.errors import StageFailedError
from edgepack.training.models.unpickling import Known, WeightsUnpickler, ordered

Array = npt.NDArray[Any]
# torch's name of a storage -> how its bytes are read. NumPy has no bfloat16: `widened` makes float32 of its bits.
BFLOAT16: Final = "bfloat16"
_STORAGES: Final[Mapping[str, str]] = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_ZIP: Final = b"PK\x03\x04"
_MAGIC: Final = 0x1950A86A20F9469CFC6C  # what the format before the archive begins with
_VERSION: Final = 1001
_MOST_SHARING: Final = 2  # bytes of all tensors per byte of the file; tied embeddings are two names of one storage
_MOST_FACTS: Final = 6  # about a storage: its kind, name, device and length, and in older files what it is a view of
_MOST_KEY_CHARS: Final = 64  # of the name of a storage, a number; it is compared for each tensor
_MOST_DIMENSIONS: Final = 8  # of a tensor; the product of very many huge ones takes for ever
_ENCODING: Final = "utf-8"  # of texts that Python 2 wrote


class _Storage(NamedTuple):
    """Numbers of which tensors are views."""

    key: str
    kind: str
    length: int


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _DataType(NamedTuple):
    """A storage class, which is only named."""

    kind: str


def read(file: Path) -> dict[str, Array]:
    """Every tensor by name: floats as float32, other numbers unchanged.

    Raises:
        StageFailedError: the file is damaged, or holds anything but tensors.
    """
    try:
        with file.open("rb") as stream:
            is_archive = stream.read(len(_ZIP)) == _ZIP
            stream.seek(0)
            size_bytes = file.stat().st_size
            return _archive(stream, size_bytes) if is_archive else _sequence(stream, size_bytes)
    except Exception as error:  # a damaged pickle fails in many ways
        raise StageFailedError(
            f"{file} cannot be read",
            why=str(error) or type(error).__name__,
            fix="copy the file again, or save the model as model.safetensors where it was made",
        ) from error


def widened(raw: bytes | memoryview, kind: str) -> Array:
    """Little-endian numbers of a `kind` -> (N,), floats as float32."""
    if kind == BFLOAT16:  # the upper half of a float32
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    numbers = np.frombuffer(raw, kind)
    return numbers.astype(np.float32) if numbers.dtype.kind == "f" else numbers


class _Unpickler(WeightsUnpickler):
    """Unpickler that builds dicts of `_Tensor` and calls no name of the file."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, _KNOWN, encoding=_ENCODING)

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _DataType(_STORAGES[name])
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> _Storage:
        if type(pid) is not tuple or not 5 <= len(pid) <= _MOST_FACTS:  # each reference would copy them
            raise pickle.UnpicklingError("it refers to something that is not a storage")
        what, kind, key, _, length, *view = pid
        if type(what) is not str or what != "storage" or not isinstance(kind, _DataType) or any(view):
            raise pickle.UnpicklingError("it refers to something that is not a storage")
        if type(key) is not str or len(key) > _MOST_KEY_CHARS or type(length) is not int or not 0 <= length < 2**63:
            raise pickle.UnpicklingError("a storage has no short name or no size")
        return _Storage(key, kind.kind, length)


def _tensor(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor has no storage")
    return _Tensor(storage, offset, size, stride)


def _parameter(data: _Tensor, *_: Any) -> _Tensor:
    return data


_KNOWN: Final[Known] = {
    ("collections", "OrderedDict"): ordered,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}


def _archive(stream: IO[bytes], size_bytes: int) -> dict[str, Array]:
    """Read the zip format: `NAME/data.pkl`, and `NAME/data/KEY` for each storage."""
    with zipfile.ZipFile(stream) as archive:
        names = archive.namelist()
        pickled = next((name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")), None)
        if pickled is None:
            raise ValueError("it is a zip archive without weights")
        folder = pickled.rpartition("/")[0]
        if f"{folder}/byteorder" in names and _part(archive, f"{folder}/byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        tensors = _tensors(_Unpickler(io.BytesIO(_part(archive, pickled))).load())
        storages = {tensor.storage for tensor in tensors.values()}
        if sum(each.length * _width(each.kind) for each in storages) > size_bytes:  # parts of an archive may overlap
            raise ValueError("its storages are larger than the file")
        numbers = {each.key: _numbers(_part(archive, f"{folder}/data/{each.key}"), each) for each in storages}
    return _views(tensors, numbers, size_bytes)


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:  # a small file could become a very large one
        raise ValueError(f"{name} in it is compressed, which torch never does")
    return archive.read(name)


def _sequence(stream: IO[bytes], size_bytes: int) -> dict[str, Array]:
    """Read the older format: pickles of magic number, version, byte order, tensors and keys, then the storages."""
    magic, version, system, held, keys = (_Unpickler(stream).load() for _ in range(5))
    if magic != _MAGIC or version != _VERSION or not system["little_endian"]:
        raise ValueError("it is not a file of torch.save, or its numbers are big-endian")
    if type(keys) is not list or not all(type(key) is str for key in keys):  # the hash of another may take for ever
        raise ValueError("it has no list of keys")
    tensors = _tensors(held)
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    numbers: dict[str, Array] = {}
    for key in keys:
        storage = storages[key]
        length = int.from_bytes(stream.read(8), "little")
        if length != storage.length:
            raise ValueError(f"storage {key} has {length} numbers instead of {storage.length}")
        numbers[key] = _numbers(stream.read(length * _width(storage.kind)), storage)
    return _views(tensors, numbers, size_bytes)


def _tensors(held: object) -> dict[str, _Tensor]:
    if not isinstance(held, dict):
        raise ValueError("it holds no dict of weights")
    for name, value in held.items():
        if type(name) is not str or not isinstance(value, _Tensor):
            raise ValueError(f"{str(name)[:80]!r} in it is not a weight")
    return held


def _numbers(raw: bytes, storage: _Storage) -> Array:
    if len(raw) != storage.length * _width(storage.kind):
        raise ValueError(f"storage {storage.key} has {len(raw)} bytes, not {storage.length} numbers")
    return widened(raw, storage.kind)


def _width(kind: str) -> int:
    """Bytes of one number."""
    return 2 if kind == BFLOAT16 else np.dtype(kind).itemsize


def _views(tensors: Mapping[str, _Tensor], numbers: Mapping[str, Array], size_bytes: int) -> dict[str, Array]:
    """The tensors by name. Whoever copies them needs memory for each, and a name costs a file only a few bytes."""
    views = {}
    left = _MOST_SHARING * size_bytes
    for name, tensor in tensors.items():
        views[name] = _view(tensor, numbers[tensor.storage.key])
        left -= views[name].size * _width(tensor.storage.kind)
        if left < 0:
            raise ValueError(f"its tensors share storages: together they have over {_MOST_SHARING} times its bytes")
    return views


def _view(tensor: _Tensor, numbers: Array) -> Array:
    """The tensor's numbers in its shape, checked against the size of the storage; no copy, since names may share it."""
    _, offset, size, stride = tensor
    counts = (offset, *size, *stride)
    proper = len(size) == len(stride) <= _MOST_DIMENSIONS
    if not proper or any(type(count) is not int or not 0 <= count < 2**63 for count in counts):
        raise ValueError("a tensor has no proper shape")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if prod(size) == 0:
        return np.zeros(size, numbers.dtype)
    if last >= len(numbers) or prod(size) > len(numbers):
        raise ValueError("a tensor reaches beyond its storage")
    steps = [step * numbers.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(numbers[offset:], size, steps, writeable=False)
