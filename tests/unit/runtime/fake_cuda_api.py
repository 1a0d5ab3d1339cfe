"""ONNX Runtime's C API as a build for CUDA has it, on a machine without a GPU. It checks the calls that it gets.

Every function is called through ctypes with its declared arguments. Those of CUDA are fakes, the others are ONNX
Runtime's own; the GPU's memory is the CPU's. A wrong call is noted in `problems`.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.engine import cuda, ort_api
from edgepack_runtime.engine.ort_api import Api

PROVIDER_OPTIONS = 0xC0DA  # a handle
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
RELEASES = {  # what gives back a handle, by the function that makes it
    "CreateSessionOptions": "ReleaseSessionOptions",
    "CreateSession": "ReleaseSession",
    "CreateRunOptions": "ReleaseRunOptions",
    "CreateMemoryInfo": "ReleaseMemoryInfo",
    "CreateAllocator": "ReleaseAllocator",
    "CreateTensorAsOrtValue": "ReleaseValue",
    "CreateTensorWithDataAsOrtValue": "ReleaseValue",
    "CreateIoBinding": "ReleaseIoBinding",
    "CreateCUDAProviderOptions": "ReleaseCUDAProviderOptions",
    "GetTensorTypeAndShape": "ReleaseTensorTypeAndShapeInfo",
}
OF_SESSIONS = ("ReleaseAllocator", "ReleaseIoBinding")  # to be called before ReleaseSession


class FakeCudaApi:
    """Stands in for the functions of the loaded library until the test ends."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []  # names, in order; copies as `to device` and `to host`
        self.problems: list[str] = []
        self.owned: list[tuple[str, int]] = []  # handles to be released, with the function that does it
        self.provider_options: dict[bytes, bytes] = {}
        self.graph_runs: list[tuple[str, bytes]] = []  # `capture` or `replay`, and the number of the graph
        self.failing = ""  # the function that returns an error
        self._appended = 0  # session options with the provider
        self._run_entries: dict[int, dict[bytes, bytes]] = {}  # by run options
        self._tensors: dict[int, tuple[tuple[int, ...], int]] = {}  # shape and kind of those on the GPU
        self._addresses: dict[int, int] = {}  # on the GPU: tensors
        self._bound: dict[int, dict[bytes, int]] = {}  # by binding: tensors by name of the input or output
        self._captured: dict[bytes, tuple[int, int]] = {}  # by number of the graph: binding and thread
        self._fresh: set[int] = set()  # tensors whose values are of this run
        api = ort_api.api()
        self._real, self._real_releases = dict(api._functions), dict(api._releases)
        for name, function in self._real.items():
            patch.setitem(api._functions, name, type(function)(self._function(name)))
        for name, function in self._real_releases.items():
            patch.setitem(api._releases, name, type(function)(self._release(name)))
        patch.setattr(Api, "available_providers", lambda self: (CUDA, CPU))
        patch.setattr(cuda, "cuda_copy", lambda: self.copy)

    def check(self, fits: bool, problem: str) -> None:
        if not fits:
            self.problems.append(problem)

    def copy(self, to: int, source: int, size: int, kind: int) -> None:
        """cudaMemcpy."""
        self.calls.append({TO_DEVICE: "to device", TO_HOST: "to host"}[kind])
        on_gpu, on_host = (to, source) if kind == TO_DEVICE else (source, to)
        tensor = self._addresses.get(on_gpu, 0)
        self.check(tensor != 0 and on_host not in self._addresses, f"copy {self.calls[-1]}: the addresses")
        shape, element = self._tensors.get(tensor, ((), 0))
        bytes_each = {ort_api.INT64: 8, ort_api.FLOAT: 4}.get(element, 0)
        self.check(size == math.prod(shape) * bytes_each, f"copy {self.calls[-1]}: {size} bytes of {shape}")
        if kind == TO_DEVICE:
            self._fresh.add(tensor)
        else:
            self.check(tensor in self._fresh, "copy to host: of logits that no run has written")
            self._fresh.clear()
        ctypes.memmove(to, source, size)

    def _function(self, name: str) -> Callable[..., int | None]:
        def called(*arguments: Any) -> int | None:
            self.calls.append(name)
            if name == self.failing:
                return self._error()
            output_before = arguments[7][0] if name == "Run" else None
            before = getattr(self, f"_before_{name}", None)
            status: int | None = None
            if name.endswith(("CUDA_V2", "CUDAProviderOptions")):
                getattr(self, f"_fake_{name}")(*arguments)
            else:
                if before is not None:
                    arguments = before(*arguments) or arguments
                status = self._real[name](*arguments)
            if status is None and name in RELEASES:
                self.owned.append((RELEASES[name], arguments[-1][0]))
            if status is None and name == "Run" and output_before is None:
                self.owned.append(("ReleaseValue", arguments[7][0]))
            after = getattr(self, f"_after_{name}", None)
            if status is None and after is not None:
                after(*arguments)
            return status

        return called

    def _release(self, name: str) -> Callable[[int | None], None]:
        def called(handle: int | None) -> None:
            self.calls.append(name)
            if name == "ReleaseStatus":
                self._real_releases[name](handle)
            elif (name, handle) in self.owned:
                self.owned.remove((name, handle))
                for table in (self._run_entries, self._tensors, self._bound):  # the handle may come again
                    table.pop(handle, None)
                if name == "ReleaseSession":
                    self.check(not [kind for kind, _ in self.owned if kind in OF_SESSIONS], "a session went too early")
                if name != "ReleaseCUDAProviderOptions":
                    self._real_releases[name](handle)
            else:
                self.check(handle is None, f"{name} of what is not there")

        return called

    def _error(self) -> int | None:
        """A status with an error, which only ONNX Runtime can make."""
        options = ctypes.c_void_p()
        self._real["CreateSessionOptions"](ctypes.byref(options))
        status: int | None = self._real["SetSessionExecutionMode"](options, 99)
        self._real_releases["ReleaseSessionOptions"](options)
        return status

    def _fake_CreateCUDAProviderOptions(self, place: Any) -> None:
        place[0] = PROVIDER_OPTIONS

    def _fake_UpdateCUDAProviderOptions(self, provider: int, keys: Any, values: Any, count: int) -> None:
        self.check(provider == PROVIDER_OPTIONS, "update of other provider options")
        self.provider_options = {keys[number]: values[number] for number in range(count)}

    def _fake_SessionOptionsAppendExecutionProvider_CUDA_V2(self, options: int, provider: int) -> None:
        self.check(provider == PROVIDER_OPTIONS and self.provider_options != {}, "options of the provider are not set")
        self.check(("ReleaseSessionOptions", options) in self.owned, "a provider for no session options")
        self._appended = options

    def _before_CreateSession(self, environment: int, path: bytes, options: int, place: Any) -> None:
        self.check(options == self._appended, "a session without the provider")

    def _before_CreateMemoryInfo(self, name: bytes, allocator: int, device: int, memory: int, place: Any) -> Any:
        wanted = (b"Cuda", ort_api.DEVICE_ALLOCATOR, 0, ort_api.DEFAULT_MEMORY)
        self.check((name, allocator, device, memory) == wanted, f"memory {name!r} {allocator} {device} {memory}")
        return b"Cpu", allocator, device, memory, place

    def _after_CreateTensorAsOrtValue(self, allocator: int, shape: Any, axes: int, kind: int, place: Any) -> None:
        self._tensors[place[0]] = (tuple(shape[:axes]), kind)

    def _after_GetTensorMutableData(self, tensor: int, place: Any) -> None:
        if tensor in self._tensors:
            self._addresses[place[0]] = tensor

    def _before_AddRunConfigEntry(self, options: int, key: bytes, value: bytes) -> None:
        self._run_entries.setdefault(options, {})[key] = value

    def _before_BindInput(self, binding: int, name: bytes, tensor: int) -> None:
        self.check(self._tensors.get(tensor, ((), 0))[1] == ort_api.INT64, f"input {name!r} is not of the GPU")
        self.check(binding not in {found for found, _ in self._captured.values()}, "bound after the capture")
        self._bound.setdefault(binding, {})[name] = tensor

    def _before_BindOutput(self, binding: int, name: bytes, tensor: int) -> None:
        self.check(self._tensors.get(tensor, ((), 0))[1] == ort_api.FLOAT, f"output {name!r} is not of the GPU")
        self._bound.setdefault(binding, {})[name] = tensor

    def _before_Run(self, session: int, options: int, *arguments: Any) -> None:
        self.check(self._run_entries.get(options) == {b"gpu_graph_id": b"-1"}, "a plain run would capture a graph")

    def _before_RunWithBinding(self, session: int, options: int, binding: int) -> None:
        bound = self._bound.get(binding, {})
        self.check(sorted(bound) == [b"input_ids", b"logits", b"token_type_ids"], f"bound are {sorted(bound)}")
        given = {tensor for name, tensor in bound.items() if name != b"logits"}
        self.check(self._fresh == given, "not exactly the inputs of this run were copied to the GPU")
        self._fresh.add(bound.get(b"logits", 0))
        number = self._run_entries.get(options, {}).get(b"gpu_graph_id", b"")
        self.check(number.isdigit() and number != b"0", f"the graph has the number {number!r}")
        self.graph_runs.append(("replay" if number in self._captured else "capture", number))
        # A replay reads and writes the addresses of the capture, and ONNX Runtime keeps graphs by thread.
        place = (binding, threading.get_ident())
        self.check(self._captured.setdefault(number, place) == place, f"graph {number!r} was captured elsewhere")
