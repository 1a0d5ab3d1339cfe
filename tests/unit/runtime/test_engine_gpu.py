"""The engine for GPUs, as far as it runs without one: buffers and shapes on the CPU, and the options of the provider.

Nothing here captures a graph: that takes the hardware.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tiny_model import write_model_folder

from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import CPU, CUDA, TOKENS, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import bound_shape, onnxruntime_gpu, onnxruntime_session, open_engine
from edgepack_runtime.engine.bound_shape import NOT_CAPTURED, BoundShape
from edgepack_runtime.engine.onnxruntime_gpu import OnnxRuntimeGpuEngine
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError

RANDOM = np.random.default_rng(7)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> type[OnnxRuntimeGpuEngine]:
    """The engine, whose session and buffers are the CPU's."""

    class OnCpu(OnnxRuntimeGpuEngine):
        def __init__(self, folder: Path) -> None:
            super().__init__(EngineConfig(provider=CPU), folder, Tuning())
            self._device = "cpu"

    monkeypatch.setattr(onnxruntime_gpu, "providers", lambda: [CPU])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    return OnCpu


def ids(batch: int, length: int) -> Any:
    return RANDOM.integers(1, 10, (batch, length))


def zeros(batch: int, length: int) -> Any:
    return np.zeros((batch, length), dtype=np.int64)


@pytest.mark.parametrize("task", [model_config.ONE_TEXT, model_config.PAIR, TOKENS])
def test_answers_are_those_of_the_cpu_engine_whatever_the_batch(task: str, tmp_path: Path, on_cpu: Any) -> None:
    folder = write_model_folder(tmp_path / "m", task=task)
    plain, bound = open_engine(EngineConfig(), folder, Tuning()), on_cpu(folder)
    for batch, length in [(1, 5), (3, 5), (4, 5), (1, 5), (5, 9), (1, 1)]:
        given, types = ids(batch, length), RANDOM.integers(0, 2, (batch, length))
        expected = plain.run(given, types)
        found = bound.run(given, types)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    assert sorted(bound._shapes) == [1, 5]


def test_an_answer_does_not_change_when_the_next_comes(tmp_path: Path, on_cpu: Any) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    first = engine.run(ids(1, 4), zeros(1, 4))
    kept = first.copy()
    engine.run(ids(1, 4) + 1, zeros(1, 4))
    np.testing.assert_array_equal(first, kept)
    wide, types = ids(2, 9), zeros(2, 4)  # ids need not be contiguous
    np.testing.assert_array_equal(engine.run(wide[:, :4], types), engine.run(wide[:, :4].copy(), types))
    with pytest.raises(StageFailedError, match="could not be run"):
        engine.run(np.full((1, 2), 10**6), zeros(1, 2))


def test_every_length_has_a_graph_of_its_own_and_late_ones_have_none(
    tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Spy(BoundShape):
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments[-1])
            super().__init__(*arguments)

    monkeypatch.setattr(onnxruntime_gpu, "BoundShape", Spy)
    monkeypatch.setattr(onnxruntime_gpu, "MOST_GRAPHS", 2)
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    for length in (3, 4, 3, 5, 5):
        engine.run(ids(1, length), zeros(1, length))
    assert made == [1, 2]


def test_only_the_first_run_of_a_length_and_runs_of_several_texts_capture_nothing(
    tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def run_options(graph_id: int) -> Any:
        told.append(graph_id)
        return onnxruntime.RunOptions()

    monkeypatch.setattr(bound_shape, "run_options", run_options)
    monkeypatch.setattr(onnxruntime_gpu, "run_options", run_options)
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    for rows, length in ((1, 3), (1, 3), (2, 3), (1, 4)):
        engine.run(ids(rows, length), zeros(rows, length))
    assert told == [NOT_CAPTURED, 1, NOT_CAPTURED, NOT_CAPTURED, 2]


def test_one_thread_opens_and_runs(tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    opened = onnxruntime_session.open_session

    def open_session(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return opened(*arguments)

    def run(self: Any, given: Any) -> Any:
        names.append(threading.current_thread().name)
        return np.zeros((1, 2), dtype=np.float32)

    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    monkeypatch.setattr(BoundShape, "run", run)
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    for _ in range(3):
        asking = threading.Thread(target=engine.run, args=(ids(1, 3), zeros(1, 3)))
        asking.start()
        asking.join()
    assert names == ["gpu_0"] * 4


def test_threads_take_turns(tmp_path: Path, on_cpu: Any) -> None:
    folder = write_model_folder(tmp_path / "m")
    plain, engine = open_engine(EngineConfig(), folder, Tuning()), on_cpu(folder)
    wrong: list[int] = []

    def ask(number: int) -> None:
        for _ in range(50):
            given = np.full((1, 4), number, dtype=np.int64)
            if not np.array_equal(engine.run(given, zeros(1, 4)), plain.run(given, zeros(1, 4))):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_cuda_captures_graphs_and_rounds_as_float32_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [(name, options)] = onnxruntime_gpu.providers()
    assert name == CUDA
    assert (options["enable_cuda_graph"], options["use_tf32"]) == ("1", "0")
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(EnvironmentUnfitError, match=f"has no {CUDA}"):  # and no fallback
        open_engine(EngineConfig(provider=CUDA), write_model_folder(tmp_path / "m"), Tuning())
