"""A build whose model runs on OpenVINO, installed where nothing of ONNX Runtime is."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto
from tests.integration.conftest import RECIPE, Project, write_rows

from edgepack.targets.local import base_python

pytestmark = pytest.mark.integration
pytest.importorskip("openvino")
TEXT = "服务很好，但是房间太小了"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("openvino")
    write_rows(folder)
    (folder / "tiny.yaml").write_text(RECIPE + "engine: openvino\n", encoding="utf-8")
    project = Project(folder)
    done = project.edgepack("build", "tiny.yaml")
    assert done.returncode == 0, done.stderr[-4000:]
    return project


def model(project: Project, folder: str) -> tuple[onnx.GraphProto, dict[str, object]]:
    models = project.folder / "dist" / "tiny-0.1.0.models"
    config = json.loads((models / folder / "model.json").read_text(encoding="utf-8"))
    return onnx.load(str(models / folder / "model.onnx")).graph, config["engine"]


def test_the_files_are_for_openvino(project: Project) -> None:
    graph, engine = model(project, "onnx-int8")
    assert engine == {"name": "openvino", "provider": "CPU", "disabled_optimizers": [], "pad_to": 16}
    assert {node.domain for node in graph.node} == {""}
    makers = {node.output[0]: node.op_type for node in graph.node}
    weighted = [node for node in graph.node if node.op_type == "MatMul" and node.name.endswith(".product")]
    assert len(weighted) == 2 * 4 + 1 + 2
    assert all({makers[name] for name in node.input} == {"DequantizeLinear"} for node in weighted)
    stored = {item.name: item.data_type for item in graph.initializer}
    assert stored["words.int8"] == TensorProto.INT8
    assert model(project, "onnx-float")[1] == engine


def test_openvino_multiplies_every_weight_in_int8(project: Project) -> None:
    import openvino

    core = openvino.Core()
    path = project.folder / "dist" / "tiny-0.1.0.models" / "onnx-int8" / "model.onnx"
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    products = [
        str(kind["runtimePrecision"].astype(str)) for kind in kinds if kind["layerType"].astype(str) == "FullyConnected"
    ]
    assert len(products) == 2 * 4 + 1 + 2
    assert set(products) == {"u8"}


def test_the_report_names_the_engine(project: Project) -> None:
    report = json.loads((project.folder / "dist" / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))
    assert report["export"]["engine"] == "openvino"
    assert "openvino" in report["tools"]


def test_the_bundle_carries_one_engine_and_nothing_that_reports_home(project: Project) -> None:
    with zipfile.ZipFile(project.bundle) as archive:
        packages = {name.split("/")[1] for name in archive.namelist() if name.startswith("site/")}
        manifest = json.loads(archive.read("manifest.json"))
    assert "openvino" in packages
    assert not [name for name in packages if "onnxruntime" in name or "telemetry" in name]
    assert manifest["target"]["provider"] == "CPU"


def test_it_installs_and_answers(project: Project, device_environment: dict[str, str], tmp_path: Path) -> None:
    def device(*command: object) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            env=device_environment, capture_output=True, encoding="utf-8", check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    prefix = tmp_path / "prefix"
    device(base_python(), "-I", "-S", project.bundle, "install", "--prefix", prefix)
    tiny = prefix / "bin" / "tiny"
    for verb in ("verify", "selftest", "doctor"):
        device(tiny, verb)
    receipt = json.loads(device(tiny, "gate", "--json"))
    assert receipt["conditions"]["engine"].startswith("openvino 20")
    assert receipt["conditions"]["providers"] == ["CPU"]
    assert json.loads(device(tiny, "predict", TEXT))["label"] in ("正面", "负面")
    assert not list((prefix / "current").resolve().rglob("__pycache__"))


def test_both_engines_are_measured_where_the_choice_is_left_to_the_build(project: Project) -> None:
    done = project.edgepack("build", "tiny.yaml", "--set", "engine=auto", "--until", "export", "--json")
    assert done.returncode == 0, done.stderr
    exported = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    artifact = json.loads((exported / "artifact.json").read_text(encoding="utf-8"))
    rows = [artifact["float_model"], artifact["small_model"], *artifact["others"]]
    assert {row["ledger"]["stage"] for row in rows} == {
        "float ONNX", "INT8 ONNX", "float ONNX (OpenVINO)", "INT8 ONNX (OpenVINO)",
    }  # fmt: skip
    assert all(row["ledger"]["p50_ms"] > 0 for row in rows)
    ships = json.loads((exported / artifact["small_model"]["folder"] / "model.json").read_text(encoding="utf-8"))
    assert ships["engine"]["name"] == artifact["engine"]
    assert "OpenVINO takes" in artifact["reason"] and "wheels on the device" in artifact["reason"]


def test_a_graph_that_is_not_understood_is_measured_on_both_engines_as_it_was_exported(project: Project) -> None:
    done = project.edgepack("build", "tiny.yaml", "--until", "student", "--json")
    student = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    other = shutil.copytree(student, project.folder / "relu")
    config = json.loads((other / "config.json").read_text(encoding="utf-8"))
    (other / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}), encoding="utf-8")
    settings = ("--set", "student.model=relu", "--set", "engine=auto")
    done = project.edgepack("build", "tiny.yaml", *settings, "--until", "export", "--json")
    assert done.returncode == 0, done.stderr
    exported = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    artifact = json.loads((exported / "artifact.json").read_text(encoding="utf-8"))
    assert artifact["small_model"] is None
    rows = [artifact["float_model"], *artifact["others"]]
    assert {row["ledger"]["stage"] for row in rows} == {"float ONNX", "float ONNX (OpenVINO)"}
    assert "not rewritten" in artifact["reason"] and "OpenVINO takes" in artifact["reason"]
