"""A student in float16: what a build makes of it here, and a bundle of one that ships."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto
from tests.integration.conftest import Project

from edgepack.targets.this_machine import base_python
from edgepack_runtime.device import info

pytestmark = pytest.mark.integration
HALF = ("build", "tiny.yaml", "--set", "quantize.method=fp16")
# A build to which any gain is enough: no engine computes float16 faster here, and a bundle of one is to be tried all
# the same.
ANY_GAIN = (
    "import sys; from edgepack import cli; from edgepack.export import selection; "
    "selection.LEAST_GAIN = -100.0; sys.exit(cli.main())"
)


def exported(project: Project, *settings: str) -> tuple[Path, dict[str, Any]]:
    """The folder and the artifact of an export that is made anew."""
    done = project.edgepack(*HALF, *settings, "--from", "export", "--until", "export", "--json")
    assert done.returncode == 0, done.stderr
    folder = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    return folder, json.loads((folder / "artifact.json").read_text(encoding="utf-8"))


def test_both_files_are_measured_and_what_ships_has_a_reason(project: Project) -> None:
    folder, made = exported(project)
    small, reason = made["small_model"], made["reason"]["text"]
    assert (small["folder"], small["precision"], made["int8"]) == ("onnx-fp16", "float16", None)
    assert 0.45 < small["onnx_bytes"] / made["float_model"]["onnx_bytes"] < 0.55
    row = small["ledger"]
    assert (row["stage"], row["parity_with"]) == ("FP16 ONNX", "float ONNX")
    assert 0 < row["parity"] < 0.02
    assert row["p50_ms"] > 0
    assert "points below float on 60 dev rows" in row["note"]["text"]
    assert reason.startswith("FP16 has 0.5")
    if made["shipped"] == "float32" and not info.half_flags():
        assert reason.endswith("float ships (on this CPU ONNX Runtime computes float16 in float32)")
    graph = onnx.load(str(folder / "onnx-fp16" / "model.onnx")).graph
    tables = {item.name: item.data_type for item in graph.initializer if len(item.dims) == 2}
    assert {name for name, kind in tables.items() if kind != TensorProto.FLOAT16} == {"logits.weight"}
    assert not list(folder.glob(".*"))


@pytest.mark.sweep
def test_a_bundle_of_one_installs_and_answers(
    project: Project, device_environment: dict[str, str], tmp_path: Path
) -> None:
    """As for a device where it pays."""
    settings = ("--set", "gates.size.model_mib=20", "--from", "export", "--dist", str(tmp_path))
    command = [sys.executable, "-c", ANY_GAIN, *HALF, *settings]
    built = subprocess.run(command, cwd=project.folder, capture_output=True, encoding="utf-8", check=False, timeout=900)
    assert built.returncode == 0, built.stderr[-4000:]
    report = json.loads((tmp_path / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))
    assert report["export"]["shipped"] == "float16"

    def device(*words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            env=device_environment, capture_output=True, encoding="utf-8", check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    bundle, prefix = tmp_path / project.bundle.name, tmp_path / "prefix"
    device(base_python(), "-I", "-S", bundle, "install", "--wait", "0", "--prefix", prefix)
    tiny = prefix / "bin" / "tiny"
    for verb in ("verify", "selftest", "doctor"):
        device(tiny, verb)
    assert json.loads(device(tiny, "gate", "--json"))["accuracy"]["n"] == 120
    assert json.loads(device(tiny, "predict", "服务很好，但是房间太小了"))["label"] in ("正面", "负面")
