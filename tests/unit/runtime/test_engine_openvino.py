"""The same promises as for ONNX Runtime, kept by OpenVINO; without it installed these tests say so and are skipped."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import RUNTIME, logits_of, write_model_folder, write_onnx

from edgepack_runtime.engine import open_engine
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError
from edgepack_runtime.model_config import EngineConfig
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.tuning import Tuning

openvino = pytest.importorskip("openvino")
ENGINE = EngineConfig("openvino", "CPU", pad_to=4)


def folder(path: Path, **config: Any) -> Path:
    return write_model_folder(path / "model", **{"engine": ENGINE, **config})


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(folder(tmp_path_factory.mktemp("tiny")))


def test_texts_of_every_length_get_the_models_logits(predictor: Predictor) -> None:
    for text in ("", "好", "店很好", "差好好差", "好" * 14):
        assert predictor.logits([text])[0].tolist() == logits_of(text)
    assert predictor.logits(["店很好", "差"]).tolist() == [logits_of("店很好"), logits_of("差")]


def test_it_tells_what_runs(predictor: Predictor) -> None:
    assert predictor.providers == ("CPU",)
    assert predictor.engine == f"openvino {version('openvino')}"


def test_both_engines_answer_alike(tmp_path: Path) -> None:
    for task in ("text-classification", "token-classification", "text-pair-classification"):
        ours = Predictor(folder(tmp_path / "ours" / task, task=task))
        theirs = Predictor(write_model_folder(tmp_path / "theirs" / task, task=task))
        item = ("店很好，ok", "差") if task.startswith("text-pair") else "店很好，ok"
        assert np.array_equal(ours.logits([item]), theirs.logits([item]))


CLOSED = """\
import signal, sys
sys.path[:] = {path!r}
from edgepack_runtime.predictor import Predictor

heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
first, second = Predictor({folder!r}), Predictor({folder!r})
del first
del second
signal.raise_signal(signal.SIGTERM)
print([int(number) for number in heard])
"""


def test_a_signal_is_handled_after_models_were_closed(tmp_path: Path) -> None:
    code = CLOSED.format(path=[str(RUNTIME), *sys.path], folder=str(folder(tmp_path)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[15]\n"), done.stderr


def test_threads_do_not_mix_answers_up(predictor: Predictor) -> None:
    texts = ["好" * n + "差" * (14 - n) for n in range(15)] * 20
    expected = [predictor.predict(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predictor.predict, texts)) == expected


def test_logits_are_kept_when_the_next_text_is_run(predictor: Predictor) -> None:
    first = predictor.logits(["好"])
    predictor.logits(["差"])
    assert first[0].tolist() == logits_of("好")


def test_precision_is_the_files_and_not_the_cpus_favourite(tmp_path: Path) -> None:
    engine: Any = open_engine(ENGINE, folder(tmp_path), Tuning(threads=2))
    compiled = engine._compiled
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 2
    assert compiled.get_property("NUM_STREAMS") == 1


def test_a_device_that_is_not_there_is_unfit(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match="has no NPU") as caught:
        Predictor(folder(tmp_path, engine=EngineConfig("openvino", "NPU")))
    assert "CPU" in caught.value.why


def test_a_file_that_is_no_model_cannot_be_loaded(tmp_path: Path) -> None:
    (folder(tmp_path) / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(StageFailedError, match=r"cannot load model\.onnx"):
        Predictor(tmp_path / "model")


def test_a_missing_model_and_a_foreign_one_are_invalid(tmp_path: Path) -> None:
    model = folder(tmp_path)
    write_onnx(model / "model.onnx", input_name="words")
    with pytest.raises(BundleInvalidError, match="is not a text classifier"):
        Predictor(model)
    (model / "model.onnx").unlink()
    with pytest.raises(BundleInvalidError, match=r"there is no model\.onnx"):
        Predictor(model)


def test_it_needs_no_onnxruntime_and_tells_nobody(tmp_path: Path) -> None:
    """Neither the other engine nor the sender of telemetry is imported, though it is there; no home is written to."""
    (tmp_path / "openvino_telemetry.py").write_text("print('telemetry')\n", encoding="utf-8")
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from edgepack_runtime.predictor import Predictor\n"
        "print(Predictor(Path(sys.argv[1])).predict('好').label)\n"
        "print([name for name in ('onnxruntime', 'openvino_telemetry') if sys.modules.get(name)])\n"
    )
    command = [sys.executable, "-c", program, str(folder(tmp_path)), str(RUNTIME), *sys.path]
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(command, env={"HOME": str(home)}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["good", "[]", ""]
    assert list(home.iterdir()) == []
