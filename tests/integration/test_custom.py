"""An imported model with a handler: from a recipe to installed releases on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.integration.served import Served
from tests.stage_lists import begun, known, ordered
from tests.unit.runtime.imported_model import write_graph

from .conftest import Done, Project

pytestmark = pytest.mark.integration
HANDLER = """\
class Handler:
    item = "file"

    def load(self, folder):
        self.unit = (folder / "unit.txt").read_text().strip()

    def preprocess(self, item):
        return {"x": [[float(len(item)), 0.0, 0.0, 0.0]]}

    def postprocess(self, outputs):
        return {"length": outputs["y"].tolist()[0][0], "unit": self.unit}

    def score(self, answer, expected):
        return max(0.0, 1.0 - abs(answer["length"] - expected) / 10)
"""
RECIPE = """\
edgepack: 1
name: imported
version: 1.0.0
task: custom
model: {graph: model.onnx, files: [unit.txt]}
handler: handler.py
examples: examples.jsonl
serve: true
gates:
  accuracy: {min: 0.6}
  latency: {p50_ms: 1000}
  size: {model_mib: 1}
"""
ROWS = 24
NAME = "imported-1.0.0-local.edgepack"


def write_project(folder: Path) -> Project:
    folder.mkdir(parents=True)
    write_graph(folder / "model.onnx", weight=2.0, bias=1.0)
    (folder / "unit.txt").write_text("bytes\n", encoding="utf-8")
    (folder / "handler.py").write_text(HANDLER, encoding="utf-8")
    (folder / "imported.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "files").mkdir()
    lines = []
    for size in range(ROWS):
        (folder / f"files/{size}.bin").write_bytes(bytes(size))
        lines.append(json.dumps({"file": f"files/{size}.bin", "expected": 2 * size + 1}) + "\n")
    (folder / "examples.jsonl").write_text("".join(lines), encoding="utf-8")
    return Project(folder)


def sh(file: Path, *arguments: str | Path, **options: Any) -> Done:
    command = [
        "sh" if file.suffix == ".edgepack" else file,
        *([file] if file.suffix == ".edgepack" else []),
        *arguments,
    ]
    return subprocess.run(
        [os.fspath(word) for word in command], capture_output=True, text=True, timeout=120, check=False, **options
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = write_project(tmp_path_factory.mktemp("imported") / "here")
    return project, project.edgepack("build", "imported.yaml")


@pytest.fixture
def bundle(imported: tuple[Project, Done]) -> Path:
    project, done = imported
    assert done.returncode == 0, done.stderr
    return project.folder / "dist" / NAME


def test_the_build_reports_the_score(imported: tuple[Project, Done], bundle: Path) -> None:
    project, done = imported
    lines = begun(done.stderr)
    assert known(line.stage for line in lines) == ordered({"examples", "graphs", "bundle", "gate"})
    assert len(lines) == lines[0].total
    assert "accuracy.min" in done.stdout
    again = project.edgepack("build", "imported.yaml")
    assert again.returncode == 0
    assert [line.note for line in begun(again.stderr) if line.stage == "graphs"] == ["cached"]
    [report] = [json.loads(file.read_text()) for file in bundle.parent.rglob("*.json") if "report" in file.name]
    assert report["verdict"] == "pass"


def test_twice_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    other = write_project(tmp_path / "a" / "much" / "longer" / "place")
    done = other.edgepack_alone("build", "imported.yaml", "--until", "bundle", environment={"TZ": "Asia/Shanghai"})
    assert done.returncode == 0, done.stderr
    [second] = (other.folder / ".edgepack").rglob(NAME)
    assert second.read_bytes() == bundle.read_bytes()


def test_the_bundle_is_gated_and_asked(bundle: Path, tmp_path: Path) -> None:
    gated = sh(bundle, "gate", "--json")
    assert gated.returncode == 0, gated.stderr
    receipt = json.loads(gated.stdout)
    assert (receipt["accuracy"]["metric"], receipt["accuracy"]["value"], receipt["accuracy"]["n"]) == ("score", 1, ROWS)
    (tmp_path / "a.bin").write_bytes(b"abc")
    asked = sh(bundle, "predict", "a.bin", cwd=tmp_path)
    assert (asked.returncode, json.loads(asked.stdout)) == (0, {"length": 7.0, "unit": "bytes"})
    assert sh(bundle, "predict", "--input", "a.bin", cwd=tmp_path).returncode == 2


def test_the_bundle_is_inspected_and_compared(imported: tuple[Project, Done], bundle: Path) -> None:
    project, _ = imported
    shown = project.edgepack("inspect", str(bundle))
    assert shown.returncode == 0, shown.stderr
    assert "a handler that reads file" in shown.stdout
    found = json.loads(project.edgepack("inspect", "--json", str(bundle)).stdout)
    assert (found["ships"], found["handler"]) == ("handler", {"graphs": ["model"], "item": "file"})
    assert project.edgepack("diff", str(bundle), str(bundle)).returncode == 0


def test_a_worse_version_does_not_replace_an_installed_one(
    imported: tuple[Project, Done], bundle: Path, tmp_path: Path
) -> None:
    prefix = tmp_path / "prefix"
    installed = sh(bundle, "install", "--wait", "0", "--prefix", prefix)
    assert installed.returncode == 0, installed.stderr
    command = prefix / "bin" / "imported"
    (tmp_path / "a.bin").write_bytes(b"abc")
    assert json.loads(sh(command, "predict", tmp_path / "a.bin").stdout)["length"] == 7

    worse = imported[0].copy(tmp_path / "worse", ".edgepack")
    write_graph(worse.folder / "model.onnx", weight=-2.0)
    built = worse.edgepack("build", "imported.yaml", "--set", "version=1.1.0", "--until", "bundle")
    assert built.returncode == 0, built.stderr
    [second] = worse.folder.rglob("imported-1.1.0-local.edgepack")
    refused = sh(second, "install", "--wait", "0", "--prefix", prefix)
    assert refused.returncode == 6, refused.stderr
    assert "accuracy.min" in refused.stdout + refused.stderr
    assert (prefix / "current").resolve().name.startswith("1.0.0-")
    assert json.loads(sh(command, "predict", tmp_path / "a.bin").stdout)["length"] == 7
    status = sh(command, "status", "--json")
    assert "1.0.0" in status.stdout

    process = subprocess.Popen([command, "serve", "--port", "0"], stderr=subprocess.PIPE, encoding="utf-8")
    server = Served(process)
    try:
        request = urllib.request.Request(f"{server.url}/predict", data=b"ab")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.loads(answer.read()) == {"length": 5.0, "unit": "bytes"}
    finally:
        process.kill()
        process.wait()
        server.close()


def test_a_handler_that_fails_ends_the_build(tmp_path: Path) -> None:
    project = write_project(tmp_path / "broken")
    source = HANDLER.replace('outputs["y"]', 'outputs["z"]')
    (project.folder / "handler.py").write_text(source, encoding="utf-8")
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode == 5, done.stderr
    assert "the handler's postprocess failed (example 1)" in done.stderr
    assert "KeyError: 'z' (handler.py, line 11)" in done.stderr


def test_a_graph_of_paddle_is_converted_and_compared(tmp_path: Path) -> None:
    project = write_project(tmp_path / "paddle")
    paddle = """\
import paddle
paddle.seed(0)
layer = paddle.nn.Linear(4, 4)
layer.weight.set_value(2 * paddle.eye(4)), layer.bias.set_value(paddle.ones([4]))
spec = [paddle.static.InputSpec([None, 4], "float32", name="x")]
traced = paddle.jit.to_static(layer, input_spec=spec, full_graph=True)
paddle.jit.save(traced, "graph/inference")
"""
    subprocess.run([sys.executable, "-c", paddle], cwd=project.folder, check=True, capture_output=True, timeout=300)
    handler = (project.folder / "handler.py").read_text(encoding="utf-8")
    (project.folder / "handler.py").write_text(handler.replace('outputs["y"]', "next(iter(outputs.values()))"))
    recipe = RECIPE.replace("graph: model.onnx", "graph: graph").replace("serve: true", "quantize: {method: ptq}")
    (project.folder / "imported.yaml").write_text(recipe, encoding="utf-8")
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode == 0, done.stderr
    assert "graph model agrees with Paddle Inference to 0.0e+00" in done.stderr
    assert "INT8 ONNX" in done.stdout
    report = json.loads((project.folder / "dist/imported-1.0.0.report.json").read_text(encoding="utf-8"))
    assert {row["stage"] for row in report["ledger"]} == {"float ONNX", "INT8 ONNX", "on local"}
    scored = ROWS - ROWS // 4  # the others calibrated
    assert {row["score"]["n"] for row in report["ledger"]} == {scored}
    assert report["export"]["parity"] == [{"stage": "float ONNX", "parity": 0.0, "parity_with": "Paddle Inference"}]
    assert "INT8" in report["export"]["reason"]
