"""`serve` asked by the reference clients of KServe v2: NVIDIA's `tritonclient.http` and `kserve`'s REST client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.served import Served, served
from tests.unit.runtime.imported_model import write_echo, write_imported
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.engine.tensors import TYPES

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make .venv-clients/.installed` installs the clients"),
]


def asked(server: Served, model: str) -> Any:
    script = Path(__file__).with_name("kserve_clients.py")
    line = [PYTHON, script, server.url.removeprefix("http://"), model]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_reference_clients(tmp_path: Path) -> None:
    with served("--model", write_model_folder(tmp_path / "hotel")) as server:
        found = asked(server, "hotel")
    triton, kserve = found["triton"], found["kserve"]
    assert triton["server"]["extensions"] == ["binary_tensor_data"]
    assert [entry["name"] for entry in triton["metadata"]["outputs"]] == ["label", "score", "scores"]
    assert triton["ready"] == [True, True, True]
    assert triton["binary"] == triton["json"] == ["good", "bad"]
    assert triton["scores"] == [pytest.approx([0.0474, 0.9526]), pytest.approx([0.982, 0.018])]
    assert triton["id"] == "7"
    assert triton["json_outputs"] == ["label", "scores"]
    assert triton["chosen"] == ["score"]
    assert triton["refused"].startswith("400: the inputs of this model are text")
    assert (kserve["live"], kserve["ready"], kserve["model_ready"]) == (True, True, True)
    for form in ("json", "binary"):
        assert (kserve[form]["id"], kserve[form]["labels"]) == ("8", ["good", "bad"])
        assert kserve[form]["score"] == pytest.approx([0.9526, 0.982])


def test_numbers_are_a_tensor(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "numbers", task="text-regression", labels=("value",))
    with served("--model", folder) as server:
        found = asked(server, "numbers")
        one = subprocess.run(
            ["curl", "-sS", f"{server.url}/predict", "--json", '{"texts": ["店很好", "店很差"]}'],
            capture_output=True, encoding="utf-8", check=True, timeout=60,
        )  # fmt: skip
    values = [answer["value"] for answer in json.loads(one.stdout)["predictions"]]
    assert found["outputs"] == [{"name": "value", "datatype": "FP32", "shape": [-1]}]
    assert found["binary"] == ["float32", [2], pytest.approx(values, abs=1e-4)]
    assert found["json"][1:] == [[2], pytest.approx(values, abs=1e-4)]


def test_the_graph_of_an_imported_model_is_asked_with_tensors_of_every_type(tmp_path: Path) -> None:
    folder = write_imported(tmp_path / "echo", item="file")
    write_echo(folder / "model.onnx", TYPES, shape=("N", 3))
    with served("--model", folder) as server:
        found = asked(server, "echo.model")
    assert {entry["name"]: entry["datatype"] for entry in found["metadata"]["inputs"]} == {
        name: "BOOL" if name == "bool" else name.upper().replace("FLOAT", "FP") for name in TYPES
    }
    assert {tuple(entry["shape"]) for entry in found["metadata"]["outputs"]} == {(-1, 3)}
    assert found["ready"]
    assert found["binary"] == found["json"] == found["mixed"] == list(TYPES)
    assert found["chosen"] == ["OF_float32"]
    shape, datatype, name = found["refused"]
    assert shape.startswith("400: the shape of `float32` is [-1, 3]")
    assert datatype.startswith("400: the datatype of `float32` is FP32")
    assert name.startswith("400: the inputs of this model are float32, uint8")
