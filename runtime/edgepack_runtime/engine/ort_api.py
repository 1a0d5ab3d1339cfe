"""ONNX Runtime through its C API, called with ctypes: one library for every Python, and no compiled module.

`struct OrtApi` of onnxruntime_c_api.h is a table of functions that only ever grows at its end, so a function is known
by its position. `Api` is that table; `Session` is a model loaded from a file, and runs it on the CPU or on a GPU.
What a process made is not released by a child that it forked: the threads that would have to end are not there.

Each function but the few that release something returns a status: null, or an error that `Api.call` raises.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import math
import os
import struct
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.bundle.model_config import CUDA
from edgepack_runtime.device.memory import usable_bytes
from edgepack_runtime.engine import tensors
from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError

API_VERSION = 18  # of ONNX Runtime 1.18 and newer: all functions below, and the options of cuda.py, are in it
# Severity of messages on stderr: none. Errors are raised with the same words, which may quote values of a request.
_FATAL_ONLY = 4
FLOAT, INT64 = 1, 7  # ONNXTensorElementDataType
DEVICE_ALLOCATOR, _ARENA_ALLOCATOR, DEFAULT_MEMORY = 0, 1, 0  # OrtAllocatorType, OrtMemType
_SEQUENTIAL = 0  # ExecutionMode
_ARENA_SHARE = 0.8  # of the memory that is usable: Python and other programs need some
_FULL = "BFCArena"  # in the message of a run whose values do not fit into the arena
_KEPT_LENGTHS = 64  # of single texts, whose buffers a thread keeps

_OUT = POINTER(c_void_p)
_NAMES = POINTER(c_char_p)
_SHAPE = POINTER(c_int64)
# name: position in `struct OrtApi`, and the arguments
_FUNCTIONS: Mapping[str, Tuple[int, Tuple[Any, ...]]] = {
    "CreateEnv": (3, (c_int, c_char_p, _OUT)),
    "DisableTelemetryEvents": (6, (c_void_p,)),
    "CreateSession": (7, (c_void_p, c_char_p, c_void_p, _OUT)),
    "Run": (9, (c_void_p, c_void_p, _NAMES, _OUT, c_size_t, _NAMES, c_size_t, _OUT)),
    "CreateSessionOptions": (10, (_OUT,)),
    "SetSessionExecutionMode": (13, (c_void_p, c_int)),
    "SetSessionLogSeverityLevel": (22, (c_void_p, c_int)),
    "SetIntraOpNumThreads": (24, (c_void_p, c_int)),
    "SetInterOpNumThreads": (25, (c_void_p, c_int)),
    "SessionGetInputCount": (30, (c_void_p, POINTER(c_size_t))),
    "SessionGetOutputCount": (31, (c_void_p, POINTER(c_size_t))),
    "SessionGetInputTypeInfo": (33, (c_void_p, c_size_t, _OUT)),
    "SessionGetOutputTypeInfo": (34, (c_void_p, c_size_t, _OUT)),
    "SessionGetInputName": (36, (c_void_p, c_size_t, c_void_p, _OUT)),
    "SessionGetOutputName": (37, (c_void_p, c_size_t, c_void_p, _OUT)),
    "CreateRunOptions": (39, (_OUT,)),
    "CreateTensorAsOrtValue": (48, (c_void_p, _SHAPE, c_size_t, c_int, _OUT)),
    "CreateTensorWithDataAsOrtValue": (49, (c_void_p, c_void_p, c_size_t, _SHAPE, c_size_t, c_int, _OUT)),
    "GetTensorMutableData": (51, (c_void_p, _OUT)),
    "CastTypeInfoToTensorInfo": (55, (c_void_p, _OUT)),
    "GetTensorElementType": (60, (c_void_p, POINTER(c_int))),
    "GetDimensionsCount": (61, (c_void_p, POINTER(c_size_t))),
    "GetDimensions": (62, (c_void_p, _SHAPE, c_size_t)),
    "GetTensorTypeAndShape": (65, (c_void_p, _OUT)),
    "CreateMemoryInfo": (68, (c_char_p, c_int, c_int, c_int, _OUT)),
    "CreateCpuMemoryInfo": (69, (c_int, c_int, _OUT)),
    "AllocatorFree": (76, (c_void_p, c_void_p)),
    "GetAllocatorWithDefaultOptions": (78, (_OUT,)),
    "GetAvailableProviders": (125, (POINTER(_NAMES), POINTER(c_int))),
    "ReleaseAvailableProviders": (126, (_NAMES, c_int)),
    "AddSessionConfigEntry": (130, (c_void_p, c_char_p, c_char_p)),
    "CreateAllocator": (131, (c_void_p, c_void_p, _OUT)),
    "RunWithBinding": (133, (c_void_p, c_void_p, c_void_p)),
    "CreateIoBinding": (134, (c_void_p, _OUT)),
    "BindInput": (136, (c_void_p, c_char_p, c_void_p)),
    "BindOutput": (137, (c_void_p, c_char_p, c_void_p)),
    "CreateAndRegisterAllocator": (144, (c_void_p, c_void_p, c_void_p)),
    "CreateArenaCfgV2": (164, (_NAMES, POINTER(c_size_t), c_size_t, _OUT)),
    "AddRunConfigEntry": (165, (c_void_p, c_char_p, c_char_p)),
    "SessionOptionsAppendExecutionProvider_CUDA_V2": (204, (c_void_p, c_void_p)),
    "CreateCUDAProviderOptions": (205, (_OUT,)),
    "UpdateCUDAProviderOptions": (206, (c_void_p, _NAMES, _NAMES, c_size_t)),
}
# Functions of one argument without a status.
_RELEASES: Mapping[str, int] = {
    "ReleaseStatus": 93,
    "ReleaseMemoryInfo": 94,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseRunOptions": 97,
    "ReleaseTypeInfo": 98,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseSessionOptions": 100,
    "ReleaseAllocator": 132,
    "ReleaseIoBinding": 135,
    "ReleaseArenaCfg": 157,
    "ReleaseCUDAProviderOptions": 208,
}
# They take long, so other threads run meanwhile. The others are over before a thread could be switched.
_WITHOUT_GIL = ("CreateSession", "Run", "RunWithBinding")


class TensorInfo(NamedTuple):
    """Shape and element type of a tensor."""

    shape: Tuple[int, ...]
    dtype: str


class Handle(c_void_p):
    """An object of ONNX Runtime, and the process that made it."""

    def __init__(self, value: Optional[int] = None) -> None:
        super().__init__(value)
        self.process = os.getpid()


class OrtError(Exception):
    """An error of ONNX Runtime. `str` is its message."""


class Api:
    """The functions of one loaded library, and its environment, which lives as long as the process.

    Args:
        library: absolute path of libonnxruntime.so.

    Raises:
        EnvironmentUnfitError: the library cannot be loaded, or is older than 1.18.
    """

    def __init__(self, library: Path) -> None:
        try:
            _require_whole(library)
            loaded = ctypes.CDLL(str(library))
            loaded.OrtGetApiBase.restype = POINTER(_ApiBase)
        except (OSError, AttributeError) as error:
            raise EnvironmentUnfitError(
                f"ONNX Runtime cannot be loaded from {library}",
                why=str(error),
                fix="install it again from its file, or build it for a target that this device offers",
            ) from error
        base = loaded.OrtGetApiBase().contents
        self.version: str = base.GetVersionString().decode()
        table = base.GetApi(API_VERSION)
        if not table:
            raise EnvironmentUnfitError(
                f"ONNX Runtime {self.version} is too old",
                why="edgepack needs 1.18 or newer",
                fix="build the bundle with a wheel of a newer ONNX Runtime",
            )
        addresses = ctypes.cast(table, _OUT)
        self._functions = {
            name: (ctypes.CFUNCTYPE if name in _WITHOUT_GIL else ctypes.PYFUNCTYPE)(c_void_p, *arguments)(
                addresses[position]
            )
            for name, (position, arguments) in _FUNCTIONS.items()
        }
        self._releases = {
            name: ctypes.PYFUNCTYPE(None, c_void_p)(addresses[position]) for name, position in _RELEASES.items()
        }
        self._message = ctypes.PYFUNCTYPE(c_char_p, c_void_p)(addresses[2])
        self.environment = self.made("CreateEnv", _FATAL_ONLY, b"edgepack")
        self.call("DisableTelemetryEvents", self.environment)
        self.cpu_memory = self.made("CreateCpuMemoryInfo", DEVICE_ALLOCATOR, DEFAULT_MEMORY)
        self.allocator = self.made("GetAllocatorWithDefaultOptions")

    @functools.cached_property
    def bounded_arena(self) -> Optional[int]:
        """Bytes of the arena that sessions may share, so that no run takes all memory; None: they are not bounded.

        The first use makes it.
        """
        usable = usable_bytes()
        if usable is None:
            return None
        most = int(_ARENA_SHARE * usable)
        # By what is asked for, and not in powers of two, of which the last one would leave half of the arena unused.
        keys, values = (c_char_p * 2)(b"max_mem", b"arena_extend_strategy"), (c_size_t * 2)(most, 1)
        config = self.made("CreateArenaCfgV2", keys, values, 2)
        where = self.made("CreateCpuMemoryInfo", _ARENA_ALLOCATOR, DEFAULT_MEMORY)
        try:
            self.call("CreateAndRegisterAllocator", self.environment, where, config)
        finally:
            self.release("ReleaseMemoryInfo", where)
            self.release("ReleaseArenaCfg", config)
        return most

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            OrtError: it failed.
        """
        status = self._functions[name](*arguments)
        if status:
            message = self._message(status).decode("utf-8", "replace")
            self._releases["ReleaseStatus"](status)
            raise OrtError(message)

    def made(self, name: str, *arguments: Any) -> Handle:
        """The result of a function whose last argument is the place for it. Raises as `call`."""
        found = Handle()
        self.call(name, *arguments, byref(found))
        return found

    def release(self, name: str, handle: Handle) -> None:
        """Call a function that releases `handle`, unless another process made it."""
        if handle.process == os.getpid():
            self._releases[name](handle)

    def tensor(self, data: Any, shape: Sequence[int], kind: int = INT64) -> Handle:
        """A tensor over the memory of `data`, a ctypes array that must live as long as the tensor."""
        dimensions = (c_int64 * len(shape))(*shape)
        size = ctypes.sizeof(data)
        return self.made(
            "CreateTensorWithDataAsOrtValue", self.cpu_memory, byref(data), size, dimensions, len(shape), kind
        )

    def address(self, value: c_void_p) -> int:
        """Where the values of a tensor lie, in the memory of its device."""
        return self.made("GetTensorMutableData", value).value or 0

    def described(self, value: c_void_p) -> TensorInfo:
        """Shape and element type of a tensor."""
        info = self.made("GetTensorTypeAndShape", value)
        try:
            return self._read_info(info)
        finally:
            self.release("ReleaseTensorTypeAndShapeInfo", info)

    def declared(self, session: c_void_p, kind: str, number: int) -> Optional[TensorInfo]:
        """What a session declares of one `Input` or `Output`; an axis of any size is -1. None: it is no tensor."""
        info = self.made(f"SessionGet{kind}TypeInfo", session, number)
        try:
            tensor = self.made("CastTypeInfoToTensorInfo", info)  # a part of `info`
            return self._read_info(tensor) if tensor.value else None
        finally:
            self.release("ReleaseTypeInfo", info)

    def _read_info(self, info: c_void_p) -> TensorInfo:
        axes, element = c_size_t(), c_int()
        self.call("GetTensorElementType", info, byref(element))
        self.call("GetDimensionsCount", info, byref(axes))
        dimensions = (c_int64 * axes.value)()
        self.call("GetDimensions", info, dimensions, axes)
        return TensorInfo(tuple(dimensions), tensors.dtype_of(element.value))

    def available_providers(self) -> Tuple[str, ...]:
        """Names of the execution providers that the library was built with."""
        names, count = _NAMES(), c_int()
        self.call("GetAvailableProviders", byref(names), byref(count))
        found = tuple((names[number] or b"").decode() for number in range(count.value))
        self.call("ReleaseAvailableProviders", names, count)
        return found


def _require_whole(library: Path) -> None:
    """Raise OSError for a library that is cut short: its process would be killed (SIGBUS) where it is loaded.

    In an ELF file of 64 bits, the table of sections lies at the end, and its place stands in the header.
    """
    with library.open("rb") as file:
        header = file.read(64)
        end = file.seek(0, os.SEEK_END)
    if len(header) < 64:
        raise OSError(f"it has {end} bytes")
    (offset,), (size, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 58)
    if end < offset + size * count:
        raise OSError(f"it is cut short: it has {end} bytes, and its table of sections ends at {offset + size * count}")


class _ApiBase(ctypes.Structure):
    _fields_ = (
        ("GetApi", ctypes.CFUNCTYPE(c_void_p, ctypes.c_uint32)),
        ("GetVersionString", ctypes.CFUNCTYPE(c_char_p)),
    )


def package_folders(name: str) -> List[Path]:
    """The folders of a package on Python's path, which is not imported."""
    found = importlib.util.find_spec(name)
    return [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]


def library_path() -> Path:
    """The library in the package `onnxruntime`.

    Raises:
        EnvironmentUnfitError: there is none.
    """
    folders = [folder / "capi" for folder in package_folders("onnxruntime")]
    for folder in folders:
        for path in sorted(folder.glob("libonnxruntime.so*")):
            return path
    why = f"there is no libonnxruntime.so in {', '.join(map(str, folders))}"
    raise EnvironmentUnfitError(
        "there is no ONNX Runtime",
        why=why if folders else "Python finds no package onnxruntime",
        fix="install it again from its file: sh FILE install --prefix PREFIX",
    )


@functools.lru_cache(maxsize=1)
def api() -> Api:
    """The library of `library_path`, loaded once. Raises as `Api`."""
    return Api(library_path())


class Session:
    """A model loaded from a file. `run` may be called from several threads at once.

    In a child that was forked, one of several threads is loaded again when it is used first.

    Args:
        path: the model.
        threads: threads of one run.
        spinning: whether idle threads wait busily.
        bounded: whether its values lie in the arena of `Api.bounded_arena`, for a model whose inputs have any size.
        disabled_optimizers: names of graph optimizers that are left out.
        cuda: options of the CUDA provider; None to run on the CPU.

    Raises:
        OrtError: the model cannot be loaded.
        EnvironmentUnfitError: the CUDA provider cannot be loaded.
    """

    def __init__(
        self,
        functions: Api,
        path: Path,
        *,
        threads: int,
        spinning: bool,
        bounded: bool = False,
        disabled_optimizers: Sequence[str] = (),
        cuda: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.api, self.path = functions, path
        self._threads, self._cuda = threads, cuda
        self._entries = {
            "session.intra_op.allow_spinning": str(int(spinning)),
            "session.set_denormal_as_zero": "1",  # in threads of its own
            "optimization.disable_specified_optimizers": ";".join(disabled_optimizers),
        }
        if bounded and functions.bounded_arena is not None:
            self._entries["session.use_env_allocators"] = "1"
        self._loading = threading.Lock()
        self._handle: Optional[Handle] = None
        self._handle = self._load()
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")
        self.input_names = (c_char_p * len(self.inputs))(*(name.encode() for name in self.inputs))
        self.output_names = (c_char_p * len(self.outputs))(*(name.encode() for name in self.outputs))
        self._kept = threading.local()

    def __del__(self) -> None:
        if self._handle is not None:
            self.api.release("ReleaseSession", self._handle)

    def _load(self) -> Handle:
        options = self.api.made("CreateSessionOptions")
        try:
            self.api.call("SetIntraOpNumThreads", options, self._threads)
            self.api.call("SetInterOpNumThreads", options, 1)
            self.api.call("SetSessionExecutionMode", options, _SEQUENTIAL)
            self.api.call("SetSessionLogSeverityLevel", options, _FATAL_ONLY)
            for key, value in self._entries.items():
                self.api.call("AddSessionConfigEntry", options, key.encode(), value.encode())
            if self._cuda is not None:
                self._append_cuda(options, self._cuda)
            return self.api.made("CreateSession", self.api.environment, os.fsencode(self.path), options)
        finally:
            self.api.release("ReleaseSessionOptions", options)

    @property
    def handle(self) -> Handle:
        """The session, for functions of the API.

        Raises:
            OrtError: a child uses a session of its parent on a GPU, or it cannot be loaded again.
        """
        assert self._handle is not None
        if self._handle.process != os.getpid():
            if self._cuda is not None:
                raise OrtError("a process that was forked cannot use the GPU: load the model in it, after the fork")
            # One thread is the caller's: nothing is missing.
            with self._loading:
                if self._threads > 1 and self._handle.process != os.getpid():
                    self._handle = self._load()
        return self._handle

    def _append_cuda(self, options: c_void_p, chosen: Mapping[str, str]) -> None:
        keys = (c_char_p * len(chosen))(*(key.encode() for key in chosen))
        values = (c_char_p * len(chosen))(*(value.encode() for value in chosen.values()))
        provider = Handle()  # releasing null does nothing
        try:
            self.api.call("CreateCUDAProviderOptions", byref(provider))
            self.api.call("UpdateCUDAProviderOptions", provider, keys, values, len(chosen))
            self.api.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, provider)
        except OrtError as error:
            raise EnvironmentUnfitError(
                f"{CUDA} is not active",
                why=str(error),
                fix="install what it names; or build the bundle for a target that this device offers",
            ) from error
        finally:
            self.api.release("ReleaseCUDAProviderOptions", provider)

    def _names(self, kind: str) -> Tuple[str, ...]:
        count = c_size_t()
        self.api.call(f"SessionGet{kind}Count", self.handle, byref(count))
        found = []
        for number in range(count.value):
            place = self.api.made(f"SessionGet{kind}Name", self.handle, number, self.api.allocator)
            found.append(ctypes.cast(place, c_char_p).value or b"")
            self.api.call("AllocatorFree", self.api.allocator, place)
        return tuple(name.decode() for name in found)

    def run(
        self, rows: int, length: int, given: Mapping[str, List[int]], options: Optional[c_void_p] = None
    ) -> List[Any]:
        """The first output for inputs of shape (rows, length), as nested lists of its shape.

        Args:
            given: values of each input in row-major order.
            options: a handle of run options.

        Raises:
            OrtError: the run failed.
        """
        if rows > 1:
            return _Buffers(self, rows, length).run(self, given, options)
        kept: Dict[Any, _Buffers] = self._kept.__dict__
        buffers = kept.get(length)
        if buffers is None:
            if len(kept) == _KEPT_LENGTHS:
                kept.pop(next(iter(kept)))
            buffers = kept[length] = _Buffers(self, rows, length)
        return buffers.run(self, given, options)

    def declared(self, kind: str) -> Dict[str, Optional[TensorInfo]]:
        """What the model declares of each `Input` or `Output`; None for one that is no tensor."""
        names = self.inputs if kind == "Input" else self.outputs
        return {name: self.api.declared(self.handle, kind, number) for number, name in enumerate(names)}

    def run_tensors(self, given: Mapping[str, Tensor], most_bytes: Optional[int] = None) -> Dict[str, Tensor]:
        """Every output for inputs of any shape and type, each of which must be given.

        Args:
            most_bytes: maximum size of all outputs, for inputs of somebody else; the memory of the run is then given
                back. None: any size, and the arena keeps the memory for the next run.

        Raises:
            OrtError: the run failed.
            UsageError: the outputs are larger.
        """
        count = len(self.outputs)
        found = (c_void_p * count)()
        memory = [ctypes.create_string_buffer(given[name].data, len(given[name].data)) for name in self.inputs]
        values: List[Handle] = []
        try:
            for name, data in zip(self.inputs, memory):
                values.append(self.api.tensor(data, given[name].shape, tensors.number_of(given[name].dtype)))
            inputs = (c_void_p * len(values))(*(value.value for value in values))
            arguments = self.input_names, inputs, len(values), self.output_names, count, found
            if most_bytes is not None:
                self.api.call("Run", self.handle, self._shrinking, *arguments)
            else:
                self._run_or_shrink(*arguments)
            if most_bytes is not None and sum(self._size_bytes(Handle(value)) for value in found) > most_bytes:
                raise UsageError(f"the outputs are larger than {most_bytes} bytes", fix="send fewer rows at a time")
            return {name: self._read(Handle(value)) for name, value in zip(self.outputs, found)}
        finally:
            for value in [*values, *(Handle(one) for one in found if one)]:
                self.api.release("ReleaseValue", value)

    def _run_or_shrink(self, *arguments: Any) -> None:
        """Run; where the arena is full of what runs of other sizes left, once more without that."""
        try:
            self.api.call("Run", self.handle, None, *arguments)
        except OrtError as error:
            if _FULL not in str(error):
                raise
            with contextlib.suppress(OrtError):  # it fails as the first did, and then gives the memory back
                self.api.call("Run", self.handle, self._shrinking, *arguments)
                return
            self.api.call("Run", self.handle, self._shrinking, *arguments)

    @functools.cached_property
    def _shrinking(self) -> Handle:
        options = self.api.made("CreateRunOptions")  # lives as long as the process, as the session of a graph does
        self.api.call("AddRunConfigEntry", options, b"memory.enable_memory_arena_shrinkage", b"cpu:0")
        return options

    def _size_bytes(self, value: c_void_p) -> int:
        return tensors.size_bytes(*self.api.described(value))

    def _read(self, value: c_void_p) -> Tensor:
        info = self.api.described(value)
        size = tensors.size_bytes(info.shape, info.dtype)
        return Tensor(ctypes.string_at(self.api.address(value), size) if size else b"", info.shape, info.dtype)


class _Buffers:
    """Memory of the inputs and the output for one shape, and tensors over it. Not for two threads at once.

    It does not hold its session: each would keep the other alive.
    """

    def __init__(self, session: Session, rows: int, length: int) -> None:
        self._api = session.api
        self._values: List[Handle] = []
        self._memory: Dict[str, Any] = {name: (c_int64 * (rows * length))() for name in session.inputs}
        for memory in self._memory.values():
            self._values.append(self._api.tensor(memory, (rows, length)))
        self._inputs = (c_void_p * len(self._values))(*(value.value for value in self._values))
        self._output = (c_void_p * 1)()  # null: the first run allocates it
        self._logits: Optional[memoryview[float]] = None

    def __del__(self) -> None:
        for value in self._values:
            self._api.release("ReleaseValue", value)

    def run(self, session: Session, given: Mapping[str, List[int]], options: Optional[c_void_p]) -> List[Any]:
        for name, memory in self._memory.items():
            memory[:] = given[name]
        self._api.call(
            "Run", session.handle, options, session.input_names, self._inputs, len(self._inputs),
            session.output_names, 1, self._output,
        )  # fmt: skip
        if self._logits is None:  # what the first run allocated is written over by the others
            value = Handle(self._output[0])
            self._values.append(value)
            self._logits = floats(self._api.address(value), self._api.described(value).shape)
        return self._logits.tolist()


def floats(address: int, shape: Sequence[int]) -> memoryview[float]:
    """float32 values at `address`; its `tolist` is nested as `shape`."""
    memory = (ctypes.c_float * math.prod(shape)).from_address(address)
    return memoryview(memory).cast("B").cast("f", shape=list(shape))
