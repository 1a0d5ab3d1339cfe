"""The engine on an NVIDIA GPU, through ONNX Runtime's CUDA provider.

Launching the kernels of a small model one by one takes longer than running them. A CUDA graph launches all of them at
once, but it reads and writes the very addresses that it was captured with. So each length of a single text has memory
of its own on the GPU, and a graph of its own under a number that ONNX Runtime gets with every run. Several texts at
once run without a graph: their shapes are many, and launching the kernels is a smaller part of the work.

ONNX Runtime keeps a captured graph for the thread that captured it. So the session is opened and run by one thread of
its own, whoever asks.
"""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import model_file, ort_api
from edgepack_runtime.engine.batch import InputBatch, shape_of
from edgepack_runtime.engine.ort_api import Handle, OrtError, Session
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError

# Each captured graph holds memory of the GPU until the session ends. Texts of further lengths run without a graph.
MAX_GRAPHS = 128
NOT_CAPTURED = -1  # ONNX Runtime's number for a run that neither captures nor replays
OPTIONS: Mapping[str, str] = {
    "device_id": "0",
    "enable_cuda_graph": "1",
    # TF32 rounds the operands of float32 products to 10 bits: not what was gated.
    "use_tf32": "0",
}
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind
# Those that the provider needs, each after those that it needs itself.
_LIBRARIES = ("libcudart", "libnvJitLink", "libcublasLt", "libcublas", "libcufft", "libcurand", "libnvrtc", "libcudnn")
_MAPS = Path("/proc/self/maps")
_MEMORY = "Cuda"  # ONNX Runtime's name of the GPU's memory

Copy = Callable[[int, int, int, int], None]  # to an address, from an address, bytes, cudaMemcpyKind


class CudaEngine:
    """One session, one run at a time. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        self._plain: Optional[Handle] = None  # options of runs without a graph
        preload()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu")
        self._session: Session = self._thread.submit(
            model_file.open_classifier, config, folder, tuning, OPTIONS
        ).result()
        self._graphs: Dict[int, CudaGraph] = {}  # of one text, by its length
        self._plain = run_options(self._session, NOT_CAPTURED)
        self._copy = cuda_copy()

    def __del__(self) -> None:
        if self._plain is not None:
            self._session.api.release("ReleaseRunOptions", self._plain)

    @property
    def providers(self) -> Tuple[str, ...]:
        return (CUDA, CPU)

    @property
    def version(self) -> str:
        return self._session.api.version

    def run(self, batch: InputBatch) -> List[Any]:
        try:
            _ = self._session.handle  # in a forked child an error: the thread is not there, and would be waited for
            return self._thread.submit(self._run, batch).result()
        except OrtError as error:
            raise StageFailedError("the model could not be run", why=str(error)) from error

    def _run(self, batch: InputBatch) -> List[Any]:
        graph = self._graphs.get(batch.length) if batch.rows == 1 else None
        if graph is not None:
            return graph.run(batch.by_name)
        # The first run of a length is plain: what a kernel allocates then must not be allocated during a capture.
        logits = self._session.run(batch.rows, batch.length, batch.by_name, self._plain)
        if batch.rows == 1 and len(self._graphs) < MAX_GRAPHS:
            number = len(self._graphs) + 1
            self._graphs[batch.length] = CudaGraph(self._session, batch.length, shape_of(logits), number, self._copy)
        return logits


class CudaGraph:
    """Memory on the GPU for one text of `length` tokens and for its logits, and the graph captured with it.

    Args:
        shape: of the logits.
        number: of the graph, 1 or more, unlike that of any other graph of the session.
        copy: copies between the host and that memory.
    """

    def __init__(self, session: Session, length: int, shape: Sequence[int], number: int, copy: Copy) -> None:
        self._session, self._api, self._copy = session, session.api, copy
        self._handles: List[Tuple[str, Handle]] = []
        device, default = ort_api.DEVICE_ALLOCATOR, ort_api.DEFAULT_MEMORY
        info = self._made("ReleaseMemoryInfo", "CreateMemoryInfo", _MEMORY.encode(), device, 0, default)
        self._allocator = self._made("ReleaseAllocator", "CreateAllocator", session.handle, info)
        inputs = {name: self._tensor((1, length), ort_api.INT64) for name in session.inputs}
        output = self._tensor(shape, ort_api.FLOAT)
        self._options = run_options(session, number)
        self._handles.append(("ReleaseRunOptions", self._options))
        self._binding = self._made("ReleaseIoBinding", "CreateIoBinding", session.handle)
        for name, value in inputs.items():
            self._api.call("BindInput", self._binding, name.encode(), value)
        self._api.call("BindOutput", self._binding, session.outputs[0].encode(), output)
        self._input_addresses = {name: self._api.address(value) for name, value in inputs.items()}
        self._output_address = self._api.address(output)
        self._ids: Any = (c_int64 * length)()
        self._logits: Any = (ctypes.c_float * math.prod(shape))()
        self._view = ort_api.floats(ctypes.addressof(self._logits), shape)

    def __del__(self) -> None:
        for name, handle in reversed(self._handles):
            self._api.release(name, handle)

    def run(self, given: Mapping[str, List[int]]) -> List[Any]:
        """The logits. Captures the graph on the first runs, and replays it on the others."""
        size = ctypes.sizeof(self._ids)
        for name, address in self._input_addresses.items():
            self._ids[:] = given[name]
            self._copy(address, ctypes.addressof(self._ids), size, _TO_DEVICE)
        self._api.call("RunWithBinding", self._session.handle, self._options, self._binding)
        size = ctypes.sizeof(self._logits)
        self._copy(ctypes.addressof(self._logits), self._output_address, size, _TO_HOST)
        return self._view.tolist()

    def _tensor(self, shape: Sequence[int], kind: int) -> Handle:
        dimensions = (c_int64 * len(shape))(*shape)
        return self._made("ReleaseValue", "CreateTensorAsOrtValue", self._allocator, dimensions, len(shape), kind)

    def _made(self, release: str, name: str, *arguments: Any) -> Handle:
        handle = self._api.made(name, *arguments)
        self._handles.append((release, handle))
        return handle


def run_options(session: Session, graph: int) -> Handle:
    """A handle of options for a run that captures or replays the graph of this number, or none with `NOT_CAPTURED`."""
    options = session.api.made("CreateRunOptions")
    session.api.call("AddRunConfigEntry", options, b"gpu_graph_id", str(graph).encode())
    return options


def preload() -> None:
    """Load the libraries of CUDA and cuDNN that travel in the bundle: the loader finds the provider's by their names.

    Without any in the bundle, the loader looks for those of the system.
    """
    folders = ort_api.package_folders("nvidia")
    for name in _LIBRARIES:
        for folder in folders:
            for path in sorted(folder.glob(f"*/lib/{name}.so*")):
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def cuda_copy(maps: Path = _MAPS) -> Copy:
    """cudaMemcpy of the CUDA runtime that ONNX Runtime's provider has loaded.

    Raises:
        EnvironmentUnfitError: none is loaded.
    """
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    paths = [line.split(None, 5)[-1] for line in lines if "/libcudart.so" in line]
    if not paths:
        raise EnvironmentUnfitError(
            "the CUDA runtime is not loaded",
            why="no libcudart.so is mapped into this process",
            fix="look at what onnxruntime printed above; or build the bundle for a target that this device offers",
        )
    library = ctypes.CDLL(paths[0])

    def copy(to: int, source: int, size: int, kind: int) -> None:
        code = library.cudaMemcpy(c_void_p(to), c_void_p(source), ctypes.c_size_t(size), kind)
        # From memory that is not pinned it returns before the bytes have arrived.
        code = code or library.cudaDeviceSynchronize()
        if code:
            raise OrtError(f"cudaMemcpy ended with error {code}")

    return copy
