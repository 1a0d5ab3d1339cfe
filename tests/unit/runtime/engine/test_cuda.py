"""The engine for GPUs, as far as it runs without one: memory, binding and turns on the CPU, and the calls for CUDA.

The memory is the CPU's and `cudaMemcpy` is `memmove`; nothing here captures a graph, which takes the hardware.
"""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.fake_cuda_api import FakeCudaApi
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.bundle.model_config import CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import cuda, model_file, open_engine
from edgepack_runtime.engine.batch import InputBatch, shape_of
from edgepack_runtime.engine.cuda import NOT_CAPTURED, CudaEngine, CudaGraph
from edgepack_runtime.engine.ort_api import Api, OrtError
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError
from edgepack_runtime.tasks.registry import ONE_TEXT, PAIR, TOKENS

RANDOM = random.Random(7)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens the engine with the session and memory of the CPU."""
    opened = model_file.open_session
    monkeypatch.setattr(
        model_file, "open_session", lambda config, folder, tuning, options=None: opened(EngineConfig(), folder, tuning)
    )
    monkeypatch.setattr(cuda, "cuda_copy", lambda: lambda to, source, size, kind: ctypes.memmove(to, source, size))
    monkeypatch.setattr(cuda, "_MEMORY", "Cpu")
    return lambda folder: CudaEngine(EngineConfig(provider=CUDA), folder, Tuning())


def batch(rows: int, length: int, most: int = 9) -> InputBatch:
    size = rows * length
    return InputBatch(RANDOM.choices(range(1, most + 1), k=size), RANDOM.choices((0, 1), k=size), rows, length)


@pytest.mark.parametrize("task", [ONE_TEXT, PAIR, TOKENS])
def test_answers_are_those_of_the_cpu_engine_whatever_the_batch(task: str, tmp_path: Path, on_cpu: Any) -> None:
    folder = write_model_folder(tmp_path / "m", task=task)
    plain, engine = open_engine(EngineConfig(), folder, Tuning()), on_cpu(folder)
    for rows, length in [(1, 5), (3, 5), (4, 5), (1, 5), (1, 5), (5, 9), (1, 1), (1, 1)]:
        given = batch(rows, length)
        found = engine.run(given)
        assert found == plain.run(given)
        assert shape_of(found)[0] == rows
    assert sorted(engine._graphs) == [1, 5]


def test_a_run_that_fails_is_an_error(tmp_path: Path, on_cpu: Any) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    engine.run(batch(1, 2))
    for _ in range(2):  # with a graph
        with pytest.raises(StageFailedError, match="could not be run"):
            engine.run(InputBatch([10**6] * 2, [0, 0], 1, 2))


def test_every_length_has_a_graph_of_its_own_and_late_ones_have_none(
    tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "MAX_GRAPHS", 2)
    numbers: list[bytes] = []
    call = Api.call

    def spy(self: Api, name: str, *arguments: Any) -> None:
        if name == "AddRunConfigEntry":
            numbers.append(arguments[2])
        call(self, name, *arguments)

    monkeypatch.setattr(Api, "call", spy)
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    for rows, length in ((1, 3), (1, 3), (2, 3), (1, 4), (1, 3), (1, 5), (1, 5)):
        engine.run(batch(rows, length))
    assert numbers == [str(NOT_CAPTURED).encode(), b"1", b"2"]


def test_one_thread_opens_and_runs(tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    call = Api.call

    def spy(self: Api, name: str, *arguments: Any) -> None:
        if name in ("CreateSession", "Run", "RunWithBinding"):
            names.append(threading.current_thread().name)
        call(self, name, *arguments)

    monkeypatch.setattr(Api, "call", spy)
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    for _ in range(3):
        asking = threading.Thread(target=engine.run, args=(batch(1, 3),))
        asking.start()
        asking.join()
    assert names == ["gpu_0"] * 4


def test_threads_take_turns(tmp_path: Path, on_cpu: Any) -> None:
    folder = write_model_folder(tmp_path / "m")
    plain, engine = open_engine(EngineConfig(), folder, Tuning()), on_cpu(folder)
    wrong: list[int] = []

    def ask(number: int) -> None:
        for _ in range(50):
            given = InputBatch([number] * 4, [0] * 4, 1, 4)
            if engine.run(given) != plain.run(given):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_memory_is_released_once(tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    engine.run(batch(1, 3))
    released: list[str] = []
    monkeypatch.setattr(Api, "release", lambda self, name, handle: released.append(name))
    graph: CudaGraph = engine._graphs.pop(3)
    expected = [name for name, _ in reversed(graph._handles)]
    del graph
    assert released == expected
    assert released[0] == "ReleaseIoBinding" and released[-1] == "ReleaseMemoryInfo"


def test_cuda_captures_graphs_and_rounds_as_float32_does(tmp_path: Path) -> None:
    assert (cuda.OPTIONS["enable_cuda_graph"], cuda.OPTIONS["use_tf32"]) == ("1", "0")
    with pytest.raises(EnvironmentUnfitError, match=f"has no {CUDA}"):  # and no fallback
        open_engine(EngineConfig(provider=CUDA), write_model_folder(tmp_path / "m"), Tuning())
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 42    /lib/libm.so.6\n", encoding="utf-8")
    with pytest.raises(EnvironmentUnfitError, match="the CUDA runtime is not loaded"):
        cuda.cuda_copy(maps)


SESSION = [
    "CreateCUDAProviderOptions",
    "UpdateCUDAProviderOptions",
    "SessionOptionsAppendExecutionProvider_CUDA_V2",
    "ReleaseCUDAProviderOptions",
    "CreateSession",
]
REPLAY = ["to device", "to device", "RunWithBinding", "to host"]


def test_calls_for_cuda_have_their_order_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model_folder(tmp_path / "m", task=TOKENS)
    batches = [batch(rows, length) for rows, length in ((1, 5), (1, 5), (1, 5), (3, 5), (1, 3), (1, 3), (1, 5))]
    plain = open_engine(EngineConfig(), folder, Tuning())
    expected = [plain.run(one) for one in batches]
    del plain
    gc.collect()
    fake = FakeCudaApi(monkeypatch)
    engine = open_engine(EngineConfig(provider=CUDA), folder, Tuning())
    assert [name for name in fake.calls if name in SESSION] == SESSION
    assert fake.provider_options == {b"device_id": b"0", b"enable_cuda_graph": b"1", b"use_tf32": b"0"}
    assert [engine.run(one) for one in batches[:2]] == expected[:2]
    fake.calls.clear()
    assert engine.run(batches[2]) == expected[2]
    assert fake.calls == REPLAY
    assert [engine.run(one) for one in batches[3:]] == expected[3:]
    assert fake.graph_runs == [("capture", b"1"), ("replay", b"1"), ("capture", b"2"), ("replay", b"1")]
    del engine
    gc.collect()
    assert (fake.problems, fake.owned) == ([], [])


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("CreateCUDAProviderOptions", EnvironmentUnfitError),
        ("UpdateCUDAProviderOptions", EnvironmentUnfitError),
        ("SessionOptionsAppendExecutionProvider_CUDA_V2", EnvironmentUnfitError),
        ("CreateSession", StageFailedError),
    ],
)
def test_an_engine_that_cannot_be_opened_leaves_nothing(
    name: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model_folder(tmp_path / "m")
    gc.collect()
    fake = FakeCudaApi(monkeypatch)
    fake.failing = name
    with pytest.raises(error):
        open_engine(EngineConfig(provider=CUDA), folder, Tuning())
    gc.collect()
    assert (fake.problems, fake.owned) == ([], [])


@pytest.mark.parametrize("name", ["CreateMemoryInfo", "CreateTensorAsOrtValue", "CreateIoBinding", "BindOutput"])
def test_a_graph_without_memory_leaves_nothing_and_the_next_one_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = write_model_folder(tmp_path / "m"), batch(1, 4)
    gc.collect()
    fake = FakeCudaApi(monkeypatch)
    engine = open_engine(EngineConfig(provider=CUDA), folder, Tuning())
    fake.failing = name
    with pytest.raises(StageFailedError, match="could not be run"):
        engine.run(given)
    fake.failing = ""
    assert engine.run(given) == engine.run(given)
    assert fake.graph_runs == [("capture", b"1")]
    del engine
    gc.collect()
    assert (fake.problems, fake.owned) == ([], [])


class CudaRuntime:
    """libcudart.so: notes each call, and returns the codes of `codes`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.codes = {"cudaMemcpy": 0, "cudaDeviceSynchronize": 0}

    def cudaMemcpy(self, to: ctypes.c_void_p, source: ctypes.c_void_p, size: ctypes.c_size_t, kind: int) -> int:
        self.calls.append(("cudaMemcpy", to.value, source.value, size.value, kind))  # as 64 bits, not as an int
        return self.codes["cudaMemcpy"]

    def cudaDeviceSynchronize(self) -> int:
        self.calls.append("cudaDeviceSynchronize")
        return self.codes["cudaDeviceSynchronize"]


def test_copies_are_made_by_the_cuda_runtime_that_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, library, opened = tmp_path / "maps", CudaRuntime(), []
    line = "7f00-7f01 r-xp 00000000 08:01 42    /release/site/nvidia/cuda_runtime/lib/libcudart.so.12\n"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 41    /lib/libm.so.6\n" + line, encoding="utf-8")
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda path: opened.append(path) or library)
    copy = cuda.cuda_copy(maps)
    assert opened == ["/release/site/nvidia/cuda_runtime/lib/libcudart.so.12"]
    copy(2**40, 2**41, 64, 1)
    assert library.calls == [("cudaMemcpy", 2**40, 2**41, 64, 1), "cudaDeviceSynchronize"]
    for name in library.codes:  # an error of an earlier kernel arrives with the synchronization
        library.codes = {**dict.fromkeys(library.codes, 0), name: 700}
        with pytest.raises(OrtError, match="700"):
            copy(2**40, 2**41, 64, 2)
