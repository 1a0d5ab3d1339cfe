"""`serve` asked by the reference clients of KServe v2: NVIDIA's `tritonclient.http` and `kserve`'s REST client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from served import served
from tiny_model import write_model_folder

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make .venv-clients/.installed` installs the clients"),
]


def test_reference_clients(tmp_path: Path) -> None:
    model = write_model_folder(tmp_path / "hotel")
    with served("--model", model) as server:
        script = Path(__file__).with_name("kserve_clients.py")
        line = [PYTHON, script, server.url.removeprefix("http://"), "hotel"]
        done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
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
