"""The engine for GPUs, as far as it runs without one: buffers and shapes on the CPU, and what the providers are told.

Nothing here captures a graph, and no TensorRT compiles: that takes the hardware.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tiny_model import write_model_folder

from edgepack_runtime import cuda_driver, model_config
from edgepack_runtime.cuda_driver import CudaFacts
from edgepack_runtime.engine import bound_shape, onnxruntime_gpu, onnxruntime_session, open_engine, tensorrt
from edgepack_runtime.engine.bound_shape import NOT_CAPTURED, BoundShape
from edgepack_runtime.engine.onnxruntime_gpu import OnnxRuntimeGpuEngine
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError
from edgepack_runtime.model_config import CPU, CUDA, TENSORRT, TOKENS, EngineConfig
from edgepack_runtime.tuning import Tuning

ORIN = CudaFacts("Orin", "8.7", "12.6", 7168)
RANDOM = np.random.default_rng(7)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> type[OnnxRuntimeGpuEngine]:
    """The engine, whose session and buffers are the CPU's."""

    class OnCpu(OnnxRuntimeGpuEngine):
        def __init__(self, folder: Path) -> None:
            super().__init__(EngineConfig(provider=CPU), folder, Tuning())
            self._device, self._captures = "cpu", True

    monkeypatch.setattr(onnxruntime_gpu, "providers", lambda config, folder: [CPU])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    return OnCpu


def ids(batch: int, length: int) -> Any:
    return RANDOM.integers(1, 10, (batch, length))


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
    assert sorted(bound._shapes) == [(1, 1), (1, 5), (4, 5), (8, 9)]


def test_an_answer_does_not_change_when_the_next_comes(tmp_path: Path, on_cpu: Any) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    first = engine.run(ids(1, 4), np.zeros((1, 4), dtype=np.int64))
    kept = first.copy()
    engine.run(ids(1, 4) + 1, np.zeros((1, 4), dtype=np.int64))
    np.testing.assert_array_equal(first, kept)


def test_ids_that_are_not_contiguous_are_taken(tmp_path: Path, on_cpu: Any) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    wide = ids(2, 9)
    types = np.zeros((2, 4), dtype=np.int64)
    np.testing.assert_array_equal(engine.run(wide[:, :4], types), engine.run(wide[:, :4].copy(), types))


def test_every_shape_has_a_graph_of_its_own_and_late_ones_have_none(
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
        engine.run(ids(1, length), np.zeros((1, length), dtype=np.int64))
    assert made == [1, 2, NOT_CAPTURED, NOT_CAPTURED]


def test_what_captures_nothing_is_not_told_of_graphs(
    tmp_path: Path, on_cpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int | None] = []
    monkeypatch.setattr(bound_shape, "_options", lambda graph_id: told.append(graph_id) or onnxruntime.RunOptions())
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    engine._captures = False
    for length in (3, 3, 4):
        engine.run(ids(1, length), np.zeros((1, length), dtype=np.int64))
    assert told == [None] * 4  # to learn the shape of the answer, and for all runs of it
    assert len(engine._shapes) == 2


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
        asking = threading.Thread(target=engine.run, args=(ids(1, 3), np.zeros((1, 3), dtype=np.int64)))
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
            types = np.zeros((1, 4), dtype=np.int64)
            if not np.array_equal(engine.run(given, types), plain.run(given, types)):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_cannot_be_run_is_an_error_of_ours(tmp_path: Path, on_cpu: Any) -> None:
    engine = on_cpu(write_model_folder(tmp_path / "m"))
    with pytest.raises(StageFailedError, match="could not be run"):
        engine.run(np.full((1, 2), 10**6), np.zeros((1, 2), dtype=np.int64))


@pytest.mark.parametrize("provider", [CUDA, TENSORRT])
def test_a_provider_that_is_not_there_is_an_error_and_no_fallback(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    monkeypatch.setattr(tensorrt, "options", lambda folder: {})
    with pytest.raises(EnvironmentUnfitError, match=f"has no {provider}"):
        open_engine(EngineConfig(provider=provider), write_model_folder(tmp_path / "m"), Tuning())


def test_cuda_is_told_to_capture_and_to_round_as_float32_does(tmp_path: Path) -> None:
    [(name, options)] = onnxruntime_gpu.providers(EngineConfig(provider=CUDA), tmp_path)
    assert name == CUDA
    assert (options["enable_cuda_graph"], options["use_tf32"]) == ("1", "0")


class TestTensorRt:
    @pytest.fixture(autouse=True)
    def _orin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda_driver, "facts", lambda: ORIN)
        monkeypatch.setattr(tensorrt, "tensorrt_version", lambda: "10.3.0")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        release = tmp_path / "prefix" / "releases" / "1.0.0-0123456789ab"
        release.mkdir(parents=True)
        (release / "manifest.json").touch()
        return write_model_folder(release / "model", precision="int8", max_length=128)

    def test_the_asked_one_comes_first_and_cuda_takes_the_rest(self, folder: Path) -> None:
        found = onnxruntime_gpu.providers(EngineConfig(provider=TENSORRT), folder)
        assert [one[0] for one in found] == [TENSORRT, CUDA]

    def test_shapes_and_precision_follow_the_model(self, folder: Path) -> None:
        options = tensorrt.options(folder)
        assert options["trt_profile_min_shapes"] == "input_ids:1x1,token_type_ids:1x1"
        assert options["trt_profile_opt_shapes"] == "input_ids:1x64,token_type_ids:1x64"
        assert options["trt_profile_max_shapes"] == "input_ids:128x128,token_type_ids:128x128"
        assert (options["trt_int8_enable"], options["trt_fp16_enable"]) == ("1", "0")

    def test_the_cache_is_of_this_model_gpu_driver_and_tensorrt(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = tensorrt.options(folder)
        cache = Path(options["trt_engine_cache_path"])
        assert cache.is_dir() and cache.parent == tmp_path / "prefix" / "cache" / "tensorrt"
        assert cache.name.endswith("-trt10.3.0-sm87-driver12.6")
        keys = {cache.name}
        for facts, version in [
            (ORIN._replace(sm="9.0"), "10.3.0"), (ORIN._replace(driver="13.0"), "10.3.0"), (ORIN, "10.4.0"),
        ]:  # fmt: skip
            keys.add(tensorrt.cache_key(folder / "model.onnx", facts, version))
        (folder / "model.onnx").write_bytes(b"another")
        keys.add(tensorrt.cache_key(folder / "model.onnx", ORIN, "10.3.0"))
        assert len(keys) == 5

    def test_a_model_in_no_prefix_has_no_cache(self, tmp_path: Path) -> None:
        options = tensorrt.options(write_model_folder(tmp_path / "m"))
        assert "trt_engine_cache_path" not in options

    def test_a_prefix_that_cannot_be_written_is_told(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "prefix" / "cache").touch()  # no folder can be made below it, whoever runs this
        assert tensorrt.cache_folder(folder) is None
        assert "cannot be kept" in capsys.readouterr().err


def test_no_tensorrt_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(EnvironmentUnfitError, match="no TensorRT"):
        tensorrt.tensorrt_version()


def test_whoever_waits_for_the_compiler_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tensorrt, "_TOLD_EVERY_S", 0.001)
    told = threading.Event()
    write = tensorrt.sys.stderr.write

    def spy(text: str) -> int:
        told.set()
        return write(text)

    monkeypatch.setattr(tensorrt.sys.stderr, "write", spy)
    with tensorrt.patience(EngineConfig(provider=TENSORRT)):
        assert told.wait(30)
    with tensorrt.patience(EngineConfig(provider=CUDA)):
        pass
    assert "TensorRT compiles the model for this GPU" in capsys.readouterr().err
