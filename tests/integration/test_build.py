"""The whole way once, with the real stack: recipe to gated bundle, installed and answering."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto
from tests.integration.conftest import RECIPE, Project

from edgepack.targets.this_machine import base_python
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.archive import Archive

pytestmark = pytest.mark.integration
TEXT = "服务很好，但是房间太小了"


def device(*command: object, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run as on a device: without network where the kernel lets us, without our environment."""
    isolated = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0 else []
    return subprocess.run(
        [*isolated, *map(str, command)],
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=300,
        **options,
    )


@pytest.fixture(scope="module")
def prefix(project: Project, device_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("device") / "prefix"
    done = device(base_python(), project.bundle, "install", "--wait", "0", "--prefix", prefix, env=device_environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return prefix


def test_the_build_ends_with_the_ledger(built: tuple[Project, subprocess.CompletedProcess[str]]) -> None:
    project, result = built
    assert result.returncode == 0, result.stderr[-4000:]
    for stage in ("teacher", "student", "static graph", "float ONNX", "INT8 ONNX", "on local"):
        assert stage in result.stdout
    report = json.loads((project.folder / "dist" / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))
    assert [row["stage"] for row in report["ledger"]][:3] == ["linear", "teacher", "student"]
    quantized = report["quantization"]
    ranges, costs = ({part["part"] for part in found["parts"]} for found in (quantized, quantized["int8"]))
    assert ranges == costs - {"words"}, "calibration and graph have one name for each part"
    page = (project.folder / "dist" / "tiny-0.1.0.report.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert 'src="http' not in page


def test_json_is_the_one_thing_on_stdout(project: Project) -> None:
    done = project.edgepack("build", "tiny.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"


def test_ranges_may_be_left_to_each_run(project: Project) -> None:
    done = project.edgepack("build", "tiny.yaml", "--set", "quantize.method=dynamic", "--until", "export", "--json")
    assert done.returncode == 0, done.stderr
    exported = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    graph = onnx.load(str(exported / "onnx-int8" / "model.onnx")).graph
    operators = [node.op_type for node in graph.node]
    assert operators.count("MatMulIntegerToFloat") == 2 * 4 + 1 + 2
    assert "DynamicQuantizeLinear" in operators
    assert "QuantizeLinear" not in operators
    alone = {name: model_config.load(exported / f"onnx-{name}").run_alone for name in ("int8", "float")}
    assert alone == {"int8": True, "float": False}


@pytest.mark.sweep
def test_auto_tries_every_way_on_dev_and_keeps_one(project: Project) -> None:
    done = project.edgepack("build", "tiny.yaml", "--set", "quantize.method=auto", "--until", "export", "--json")
    assert done.returncode == 0, done.stderr
    exported = project.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    made = json.loads((exported / "artifact.json").read_text(encoding="utf-8"))["int8"]
    trials = {one["method"]: one for one in made["trials"]}
    assert set(trials) == {f"ptq ({name})" for name in ("hist", "kl", "mse", "emd", "avg", "abs_max")} | {"dynamic"}
    assert trials[made["method"]]["drop_points"] == min(one["drop_points"] for one in trials.values())
    assert all(one["divergence"] > 0 for one in trials.values())
    assert {part["part"] for part in made["parts"]} >= {"words", "layers.0.query_key_value", "head"}
    assert not list(exported.glob(".*"))


def test_every_matmul_weight_and_the_embedding_is_int8(project: Project) -> None:
    graph = onnx.load(str(project.folder / "dist" / "tiny-0.1.0.models" / "onnx-int8" / "model.onnx")).graph
    constants = {item.name: item for item in graph.initializer}
    multiplied = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
    # Of each layer queries, keys and values together, output and two of feed-forward; the queries of the first token,
    # which the last layer computes alone; pooler and classifier.
    assert len(multiplied) == 2 * 4 + 1 + 2
    assert all(constants[node.input[1]].data_type == TensorProto.INT8 for node in multiplied)
    assert not [node for node in graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in constants]
    gathered = [
        constants[node.input[0]] for node in graph.node if node.op_type == "Gather" and "input_ids" in node.input
    ]
    assert {TensorProto.INT8} <= {item.data_type for item in gathered}
    assert all(item.dims[1] == 1 for item in gathered if item.data_type == TensorProto.FLOAT)  # the scales


def test_an_unchanged_build_takes_everything_from_the_workspace(project: Project) -> None:
    again = project.edgepack("build", "tiny.yaml")
    assert again.returncode == 0, again.stderr[-2000:]
    assert "train teacher" not in again.stderr
    assert "train student" not in again.stderr


def test_an_installed_bundle_answers(prefix: Path, device_environment: dict[str, str]) -> None:
    done = device(prefix / "bin" / "tiny", "predict", TEXT, env=device_environment)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert answer["label"] in ("正面", "负面")
    assert 0.5 <= answer["score"] <= 1
    assert not list((prefix / "current").resolve().rglob("__pycache__"))
    for verb in ("doctor", "verify", "selftest", "status"):
        done = device(prefix / "bin" / "tiny", verb, env=device_environment)
        assert done.returncode == 0, done.stderr


def test_a_flipped_byte_is_refused_by_name(
    project: Project, device_environment: dict[str, str], tmp_path: Path
) -> None:
    damaged, member = tmp_path / "damaged.edgepack", "model/model.onnx"
    shutil.copy(project.bundle, damaged)
    with zipfile.ZipFile(damaged) as archive:
        info = archive.getinfo(member)
    position = info.header_offset + 30 + len(member) + info.compress_size // 2
    with damaged.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    for verb in (["verify"], ["install", "--wait", "0", "--prefix", str(tmp_path / "prefix")]):
        done = device(base_python(), damaged, *verb, env=device_environment)
        assert done.returncode == 8, done.stderr
        assert member in done.stderr
    assert not (tmp_path / "prefix" / "current").exists()
    assert project.edgepack("verify", str(damaged)).returncode == 8


@pytest.mark.parametrize("metric", [pytest.param("accuracy", marks=pytest.mark.sweep), "macro_f1"])
def test_a_missed_gate_exits_6_and_delivers_nothing(project: Project, metric: str) -> None:
    """Whatever it judges by, it names the stage, and nothing is trained or exported for it again."""
    asked = RECIPE.replace("min: 0.3", f"metric: {metric}, min: 0.9999")
    (project.folder / "strict.yaml").write_text(asked, encoding="utf-8")
    done = project.edgepack("build", "strict.yaml", "--dist", "strict-dist")
    assert done.returncode == 6, done.stderr[-2000:]
    assert "accuracy.min" in done.stderr
    assert "missed by" in done.stderr
    assert any(told in done.stderr for told in ("lost by stage", "lost on ", "no stage reaches the limit"))
    stages = done.stderr.partition("bundle\n")[0]
    assert "export" in stages and "train " not in stages and stages.count("timing") == 1  # combine knows the gates
    ledger = json.loads((project.folder / "strict-dist" / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))[
        "ledger"
    ]
    assert {row["score"]["metric"] for row in ledger} == {metric}
    assert not list((project.folder / "strict-dist").glob("*.edgepack"))
    assert (project.folder / "strict-dist" / "tiny-0.1.0.report.html").is_file()


def test_gate_command_runs_the_bundles_own_gate(project: Project) -> None:
    done = project.edgepack("gate", str(project.bundle), "--json")
    told = json.loads(done.stdout)
    (result,) = told["results"]
    receipt = result["receipt"]
    assert done.returncode == told["exit_code"] == {"pass": 0, "fail": 6, "inconclusive": 7}[receipt["verdict"]]
    assert receipt["bundle"]["name"] == "tiny"
    assert receipt["accuracy"]["n"] == 120
    assert receipt["conditions"]["providers"] == ["CPUExecutionProvider"]


def test_golden_rows_can_be_kept_out(project: Project, device_environment: dict[str, str], tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    built = project.edgepack("build", "tiny.yaml", "--set", "gates.golden.carry=false", "--dist", str(dist))
    assert built.returncode == 0, built.stderr[-4000:]  # the build has them, and gates with them
    bundle, rows = dist / project.bundle.name, dist / f"{project.bundle.stem}.rows.jsonl"
    texts = {json.loads(line)["text"] for line in rows.read_text(encoding="utf-8").splitlines()}
    assert len(texts) > 100
    secrets = [text.encode() for text in texts if len(text) > 4]
    with Archive(bundle) as archive:
        for path, member in archive.members.items():
            inside = archive.read(path, member.size)
            assert not [secret for secret in secrets if secret in inside], path
    others = [path for path in dist.rglob("*") if path.is_file() and path not in (bundle, rows)]
    for path in others:
        inside = path.read_bytes()
        assert not [secret for secret in secrets if secret in inside], path
    assert not [secret for secret in secrets if secret in built.stdout.encode()]
    line = [base_python(), bundle, "gate", "--json"]
    for more, code in (([], 7), (["--rows", rows], 0)):
        done = device(*line, *more, env=device_environment)
        assert done.returncode == code, done.stderr
        found = json.loads(done.stdout)
        assert [one["waived"] for one in found["unmeasured"]] == ([] if more else [False] * 2)
    assert found["accuracy"]["n"] == 120
    install = [base_python(), bundle, "install", "--wait", "0", "--no-tune", "--prefix", tmp_path / "prefix"]
    done = device(*install, env=device_environment)
    assert done.returncode == 0, done.stderr
    assert "accuracy.min: not measured: the labelled rows are not in the bundle" in done.stderr


def test_bench_compares_both_files(project: Project, tmp_path: Path) -> None:
    models = project.folder / "dist" / "tiny-0.1.0.models"
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{TEXT}\n", encoding="utf-8")
    command = [sys.executable, "-m", "edgepack_runtime", "bench"]
    done = subprocess.run(
        [*command, str(models / "onnx-float"), str(models / "onnx-int8"), "--texts", str(texts), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["models"]) == 2


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_student_that_cannot_be_loaded_shows_before_the_teacher_is_trained(
    project: Project, tmp_path: Path, damage: str
) -> None:
    trained = next((project.folder / ".edgepack" / "student").glob("*/model_state.pdparams"))
    model = Path(shutil.copytree(trained.parent, tmp_path / "model"))
    weights = model / trained.name
    weights.write_bytes(weights.read_bytes()[:-1000])
    for split in ("train", "dev", "test"):
        shutil.copy(project.folder / f"{split}.tsv", tmp_path)
    recipe = RECIPE.replace("{scratch: {layers: 2, hidden: 312, heads: 12}}", "./model")
    assert recipe != RECIPE
    (tmp_path / "tiny.yaml").write_text(recipe, encoding="utf-8")
    if damage == "removed":
        weights.unlink()
    done = Project(tmp_path).edgepack("build", "tiny.yaml")
    assert done.returncode == (3 if damage == "removed" else 5), done.stderr
    assert "train teacher" not in done.stderr
    assert "model" in done.stderr
    assert "Traceback" not in done.stderr
