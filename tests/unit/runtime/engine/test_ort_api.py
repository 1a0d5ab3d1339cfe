"""ONNX Runtime through its C API: results, errors, threads, and memory that is given back."""

from __future__ import annotations

import ctypes.util
import gc
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.engine import ort_api
from edgepack_runtime.engine.ort_api import Api, OrtError, Session
from edgepack_runtime.errors import EnvironmentUnfitError

INPUTS = ("input_ids", "token_type_ids")


def opened(folder: Path, **options: Any) -> Session:
    return Session(ort_api.api(), folder / "model.onnx", **{"threads": 1, "spinning": False, **options})


@pytest.fixture(scope="module", params=["text-classification", "token-classification"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(tmp_path_factory.mktemp("tiny") / "model", task=request.param)


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return opened(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])


@given(st.data())
def test_logits_are_those_of_the_python_module(
    session: Session, reference: onnxruntime.InferenceSession, data: st.DataObject
) -> None:
    rows, length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    ids = data.draw(st.lists(st.integers(0, 9), min_size=rows * length, max_size=rows * length))
    arrays = {name: np.array(ids if name == INPUTS[0] else [0] * len(ids)).reshape(rows, length) for name in INPUTS}
    wanted = reference.run(None, {name: arrays[name] for name in session.inputs})[0]
    given_values = {name: array.ravel().tolist() for name, array in arrays.items()}
    assert session.run(rows, length, given_values) == wanted.tolist()


def test_the_library_names_its_version_and_providers() -> None:
    assert ort_api.api().version == onnxruntime.__version__
    assert set(ort_api.api().available_providers()) == set(onnxruntime.get_available_providers())
    assert ort_api.library_path().name.startswith("libonnxruntime.so")


def test_an_answer_does_not_change_when_the_next_comes(session: Session) -> None:
    first = session.run(1, 2, {"input_ids": [1, 2], "token_type_ids": [0, 0]})
    kept = repr(first)
    session.run(1, 2, {"input_ids": [3, 4], "token_type_ids": [0, 1]})
    assert repr(first) == kept


def test_threads_do_not_share_buffers(session: Session) -> None:
    texts = [[number % 10] * (1 + number % 3) for number in range(300)]

    def run(ids: list[int]) -> Any:
        return session.run(1, len(ids), {"input_ids": ids, "token_type_ids": [0] * len(ids)})

    expected = [run(ids) for ids in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, texts)) == expected


def test_an_error_has_the_message_of_onnxruntime(session: Session, tmp_path: Path) -> None:
    for rows in (1, 2):
        with pytest.raises(OrtError, match="out of data bounds"):
            session.run(rows, 2, {name: [10**6] * 2 * rows for name in INPUTS})
        session.run(rows, 2, {name: [1] * 2 * rows for name in INPUTS})  # and goes on
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(OrtError, match=r"Protobuf|protobuf"):
        opened(tmp_path)


def test_a_provider_that_cannot_be_loaded_is_an_error(folder: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match="CUDAExecutionProvider is not active"):
        opened(folder, cuda={"device_id": "0"})


def test_everything_that_is_made_is_released(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = ort_api.api()
    made: Counter[str] = Counter()
    create, release = Api.made, Api.release
    kinds = {
        "CreateSession": "Session", "CreateSessionOptions": "SessionOptions", "CreateTensorWithDataAsOrtValue": "Value",
        "GetTensorTypeAndShape": "TensorTypeAndShapeInfo",
    }  # fmt: skip

    def count_made(self: Api, name: str, *arguments: Any) -> Any:
        made[kinds.get(name, "other")] += 1
        return create(self, name, *arguments)

    def count_released(self: Api, name: str, handle: Any) -> None:
        made[name[len("Release") :]] -= 1
        release(self, name, handle)

    gc.collect()  # what other tests left
    monkeypatch.setattr(Api, "made", count_made)
    monkeypatch.setattr(Api, "release", count_released)
    session = opened(folder)
    for rows, length in ((1, 1), (1, 2), (1, 1), (3, 2), (3, 2)):
        session.run(rows, length, {name: [1] * rows * length for name in INPUTS})
    outputs = 4  # allocated by runs: of (1, 1) and (1, 2) once, of (3, 2) each time
    del session
    gc.collect()
    made.pop("other")
    assert made == {"Session": 0, "SessionOptions": 0, "Value": -outputs, "TensorTypeAndShapeInfo": 0}
    assert api is ort_api.api()


FORKS = """
import os, signal, sys
from edgepack_runtime import Predictor
predictor = Predictor(sys.argv[1], threads=int(sys.argv[2]))
texts = ["\u597d", "\u5dee\u597d" * 7] * 8
wanted = predictor.predict_batch(texts)
for _ in range(2):  # a child, and its own
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)
    signal.alarm(60)
    for _ in range(2):
        assert predictor.predict(texts[1]) == wanted[1]
        assert predictor.predict_batch(texts) == wanted
"""


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_forked_child_answers_and_ends(folder: Path, threads: int) -> None:
    line = [sys.executable, "-W", "ignore", "-c", FORKS, str(folder), str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(Path(ort_api.__file__).parents[2])}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_that_predicts_nothing_ends(folder: Path) -> None:
    """It must not release what its parent made: the library has no threads here."""
    program = FORKS[: FORKS.index("for _ in range(2):  # a child")]
    program += "child = os.fork()\nif child:\n    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)\n"
    line = [sys.executable, "-W", "ignore", "-c", program, str(folder), "4"]
    environment = {**os.environ, "PYTHONPATH": str(Path(ort_api.__file__).parents[2])}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_does_not_use_the_gpu_of_its_parent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(folder)
    session._cuda = {}
    monkeypatch.setattr(ort_api.os, "getpid", lambda: -1)
    with pytest.raises(OrtError, match="forked"):
        session.run(1, 1, {name: [1] for name in INPUTS})


def test_buffers_of_few_lengths_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_api, "_KEPT_LENGTHS", 2)
    session = opened(folder)
    for length in (1, 2, 3, 1, 2):
        session.run(1, length, {name: [1] * length for name in INPUTS})
    assert sorted(session._kept.__dict__) == [1, 2]


@pytest.mark.sweep
@pytest.mark.parametrize("rows", [1, 2])
def test_a_million_runs_take_no_more_memory(folder: Path, rows: int) -> None:
    session = opened(folder)
    ids = {name: [1] * 3 * rows for name in INPUTS}
    for _ in range(10_000):
        session.run(rows, 3, ids)
    before = resident_bytes()
    for _ in range(1_000_000):
        session.run(rows, 3, ids)
    assert resident_bytes() - before < 2 * 2**20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


ATTENTION = """
import sys
from pathlib import Path
from edgepack_runtime.engine import ort_api
from edgepack_runtime.engine.tensors import Tensor

ort_api.usable_bytes = lambda: 400 << 20
session = ort_api.Session(ort_api.api(), Path(sys.argv[1]), threads=1, spinning=False, bounded=True)

def run(rows, most_bytes=None):
    session.run_tensors({"x": Tensor(bytes(16 * rows), (rows, 4), "float32")}, most_bytes)
    return int(Path("/proc/self/statm").read_text().split()[1]) // 256

before = run(100)
print(run(6000) - before, run(6000, 1 << 20) - before, flush=True)
run(12_000)
"""


def test_a_graph_that_attends_over_any_number_of_rows_takes_no_more_than_its_arena(tmp_path: Path) -> None:
    """Its memory grows with the square of the rows: 137 MiB for 6,000, and 549 for 12,000 of 16 bytes each."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", ATTENTION, str(tmp_path / "model.onnx")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    kept_mib, given_back_mib = map(int, found.stdout.split())
    assert kept_mib > 100
    assert given_back_mib < 20
    assert "ort_api.OrtError: " in found.stderr


def test_without_a_library_the_error_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(ort_api.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentUnfitError, match="there is no ONNX Runtime") as error:
        ort_api.library_path()
    assert error.value.why == "Python finds no package onnxruntime"
    places = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(ort_api.importlib.util, "find_spec", lambda name: places)
    with pytest.raises(EnvironmentUnfitError) as error:
        ort_api.library_path()
    assert error.value.why == f"there is no libonnxruntime.so in {tmp_path}/capi"


def test_a_library_that_cannot_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libonnxruntime.so"
    broken.write_bytes(b"\x7fELF")
    with pytest.raises(EnvironmentUnfitError, match="cannot be loaded"):
        Api(broken)
    with pytest.raises(EnvironmentUnfitError, match="cannot be loaded"):  # another library
        Api(Path(ctypes.util.find_library("m") or ""))
    monkeypatch.setattr(ort_api, "API_VERSION", 10**6)
    with pytest.raises(EnvironmentUnfitError, match="is too old"):
        Api(ort_api.library_path())
