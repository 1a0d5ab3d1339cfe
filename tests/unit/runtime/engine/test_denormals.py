"""Denormals are zero while a model runs, in all of its threads, and nowhere else."""

from __future__ import annotations

import platform
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import open_engine
from edgepack_runtime.engine.batch import InputBatch
from edgepack_runtime.engine.denormals import DenormalsAsZero

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the mode is one of x86-64"
)
TINY = np.full(8, 1e-39, dtype=np.float32)  # below the smallest normal number, 1.2e-38


def counted() -> bool:
    """Whether denormals count for something in this thread."""
    return bool((TINY * np.float32(1.0)).any())


def test_denormals_are_zero_inside_and_not_after() -> None:
    assert counted()
    context = DenormalsAsZero()
    for _ in range(2):
        with context:
            assert not counted()
            assert float(np.float32(1e-30) * np.float32(1e-9)) == 0.0
            assert np.float32(2.0) * np.float32(1.5) == 3.0
        assert counted()
    with pytest.raises(ZeroDivisionError), DenormalsAsZero():
        _ = 1 / 0
    assert counted()
    with DenormalsAsZero():
        with DenormalsAsZero():
            pass
        assert not counted()
    assert counted()


def test_other_threads_keep_their_mode() -> None:
    ready, done, found = threading.Event(), threading.Event(), []

    def other() -> None:
        ready.wait()
        found.append(counted())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()  # threads begin with the mode of the one that starts them
    with DenormalsAsZero():
        ready.set()
        done.wait()
    thread.join()
    assert found == [True]


def model(folder: Path) -> Path:
    """`logits` are 0 where ids by 1e-39 count as zero, and otherwise a tenth of the ids."""
    constants = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (("small", 1e-39), ("large", 1e38))
    ]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "small"], ["denormal"]),
        helper.make_node("Mul", ["denormal", "large"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", "tokens"])]
    graph = helper.make_graph(nodes, "denormals", inputs, outputs, constants)
    folder.mkdir()
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(folder / "model.onnx"))
    return folder


@pytest.mark.parametrize("threads", [1, 2])
def test_an_engine_runs_without_them_and_its_caller_keeps_them(threads: int, tmp_path: Path) -> None:
    engine = open_engine(EngineConfig(), model(tmp_path / "m"), Tuning(threads))
    assert counted(), "opening a session left the mode as it was"
    ids = [1] * 1_000_000  # enough that two threads share it
    assert not any(map(any, engine.run(InputBatch(ids, ids, 4, 250_000))))
    assert counted()
