"""`scripts/accept-gpu`: steps, results and errors, on a stand-in for a bundle file.

The stand-in answers doctor, install, gate and env with the JSON of the real verbs. Its model is real, and is opened
by the real engine for GPUs with the session and memory of the CPU.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import RUNTIME, write_model_folder, write_release

from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig
from edgepack_runtime.device import doctor, probe
from edgepack_runtime.gate import runner

SCRIPT = Path(__file__).parents[2] / "scripts" / "accept-gpu"
STEPS = ["doctor", "install", "gate", "cuda_graphs", "plain_cuda", "labels", "memory"]
ROWS = [("店很好", "good", "good"), ("店很差", "bad", "bad"), ("好好", "good", "good")]

# Answers a verb with an exit code and a JSON object out of answers.json. `install` makes what the script looks for.
STAND_IN = """\
import json, os, sys
from pathlib import Path

here, verb = Path({here!r}), sys.argv[1]
code, found = json.loads((here / "answers.json").read_text(encoding="utf-8"))[verb]
if verb == "install" and code == 0:
    prefix = Path(sys.argv[sys.argv.index("--prefix") + 1])
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "tiny").write_text((here / "start").read_text())
    (prefix / "bin" / "tiny").chmod(0o755)
    (prefix / "current").symlink_to(here / "release")
print("progress of", verb, file=sys.stderr)
print(json.dumps(found))
sys.exit(code)
"""
# The Python of the release: its engine for GPUs works on the CPU, with the defects of defects.json.
PYTHON = """\
#!{python}
import ctypes, json, runpy, sys
from pathlib import Path

sys.path[:0] = {path!r}
from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.engine import cuda, model_file

sys.argv = sys.argv[2:]  # without -S
opened, run = model_file.open_session, cuda.CudaEngine.run

def open_session(config, folder, tuning, options=None):
    if options is not None:  # for CUDA
        assert options["enable_cuda_graph"] == {{"cuda_graphs": "1", "plain_cuda": "0"}}[sys.argv[2]]
    return opened(EngineConfig(), folder, tuning)

model_file.open_session = open_session
cuda.cuda_copy = lambda: lambda to, source, size, kind: ctypes.memmove(to, source, size)
cuda._MEMORY = "Cpu"
defects = json.loads((Path({here!r}) / "defects.json").read_text())
if "wrong labels of batches" in defects:
    cuda.CudaEngine.run = lambda self, batch: [
        [-logit for logit in row] if batch.rows > 1 else row for row in run(self, batch)
    ]
if "no graphs" in defects:
    cuda.MAX_GRAPHS = 0
if "broken file" in defects:
    (Path({here!r}) / "release/model/model.onnx").write_bytes(b"broken")
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NVIDIA_SMI = """\
#!/bin/sh
printf x >> {here}/calls
echo $((1000 + 50 * $(wc -c < {here}/calls)))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the verbs of a bundle print on a machine with a GPU: exit code and JSON object, by verb."""
    release, manifest = write_release(tmp_path_factory.mktemp("real") / "release", rows=ROWS)
    checks = [dataclasses.asdict(check) for check in doctor.check_device(manifest)]
    gate = runner.run(release, manifest, bundle_bytes=1, progress=lambda text: None, without_gates=True)
    gate["conditions"]["providers"] = [CUDA, CPU]
    return {
        "doctor": [0, {"ok": True, "checks": checks, "device": probe.collect()}],
        "install": [0, {"verdict": "installed", "bundle": gate["bundle"]}],
        "gate": [0, gate],
    }


class Machine:
    """A folder with a bundle file, and what the machine around it has."""

    def __init__(self, folder: Path, answers: dict[str, Any]) -> None:
        self.folder, self.file = folder, folder / "tiny.edgepack"
        self.answers, self.defects, self.shell = copy.deepcopy(answers), list[str](), ""
        self.answers["env"] = [0, {"EDGEPACK_PYTHON": str(folder / "python"), "PYTHONPATH": "of the release"}]
        write_release(folder / "release", rows=ROWS, engine=EngineConfig(provider=CUDA))
        self.program("python", PYTHON.format(python=sys.executable, path=[str(RUNTIME), *sys.path], here=str(folder)))
        self.program("bin/nvidia-smi", NVIDIA_SMI.format(here=folder))
        (folder / "tmp").mkdir()

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def accept(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, the JSON line and stderr of the script, which lies beside the file and nowhere else."""
        (self.folder / "answers.json").write_text(json.dumps(self.answers), encoding="utf-8")
        (self.folder / "defects.json").write_text(json.dumps(self.defects), encoding="utf-8")
        (self.folder / "stand_in.py").write_text(STAND_IN.format(here=str(self.folder)), encoding="utf-8")
        start = f'#!/bin/sh\n{self.shell}\nexec {sys.executable} {self.folder}/stand_in.py "$@"\n'
        self.program("start", start)
        if not self.file.exists():
            self.file.write_text(start, encoding="utf-8")
        shutil.copy(SCRIPT, self.folder)
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-I", "-S", self.folder / "accept-gpu", self.file, *options],
            env={"PATH": path, "TMPDIR": str(self.folder / "tmp")},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        (line,) = done.stdout.splitlines()
        return done.returncode, json.loads(line), done.stderr


@pytest.fixture
def machine(tmp_path: Path, answers: dict[str, Any]) -> Machine:
    return Machine(tmp_path, answers)


def failed(found: dict[str, Any]) -> dict[str, str]:
    """The reasons of the failed steps."""
    return {name: step["why"] for name, step in found["steps"].items() if not step["ok"]}


def test_a_good_bundle_passes_every_step(machine: Machine) -> None:
    code, found, errors = machine.accept()
    assert (failed(found), code, found["ok"]) == ({}, 0, True), errors
    assert list(found["steps"]) == STEPS
    *steps, goal = errors.splitlines()
    assert [line.split()[:2] for line in steps] == [["ok", step] for step in STEPS]
    assert found["steps"]["gate"]["providers"] == [CUDA, CPU]
    assert found["steps"]["labels"]["texts"] == 6  # golden texts and rows
    assert found["steps"]["cuda_graphs"]["graphs"] == 3 and found["steps"]["plain_cuda"]["graphs"] == 0
    assert found["device"]["cpu_model"] == machine.answers["doctor"][1]["device"]["cpu_model"]
    for batch in ("batch1", "batch32"):
        assert list(found["latency_ms"][batch]) == ["cuda_graphs", "plain_cuda"]
        for times in found["latency_ms"][batch].values():
            total, model = times["text_to_label"], times["model"]
            assert 0 < model["p50"] <= total["p50"] <= total["p95"]
            assert total["round_p50_low"] <= total["p50"] <= total["round_p50_high"]
    for memory in found["memory_mib"].values():
        assert memory["process_peak"] > 1 and memory["gpu"] == 50
    measured = found["latency_ms"]["batch1"]["cuda_graphs"]["text_to_label"]["p50"]
    assert found["goal"] == {"batch1_ms": 0.3, "measured_ms": measured, "met": measured <= 0.3}
    assert f"({measured} ms)" in goal
    assert list((machine.folder / "tmp").iterdir()) == []


def test_a_file_without_a_head_for_sh_is_started_with_python(machine: Machine) -> None:
    with zipfile.ZipFile(machine.file, "w") as bundle:
        bundle.writestr("__main__.py", f"import runpy; runpy.run_path({str(machine.folder / 'stand_in.py')!r})")
    code, found, _ = machine.accept("--keep")
    assert (failed(found), code) == ({}, 0)
    (kept,) = (machine.folder / "tmp").iterdir()
    assert (kept / "prefix" / "bin" / "tiny").is_file()


def test_a_provider_that_is_not_active_is_a_failure(machine: Machine) -> None:
    machine.answers["gate"][1]["conditions"]["providers"] = [CPU]
    code, found, errors = machine.accept()
    why = f"{CUDA} is not active; active: {CPU}"
    assert (code, found["ok"], failed(found)) == (1, False, {"gate": why})
    assert "FAILED gate" in errors
    write_model_folder(machine.folder / "release" / "model")  # of a bundle for the CPU
    steps = failed(machine.accept()[1])
    assert (steps["cuda_graphs"], steps["plain_cuda"]) == (why, why)
    assert steps["labels"] == "not run: it needs cuda_graphs or plain_cuda"


def test_labels_that_differ_are_a_failure(machine: Machine) -> None:
    machine.defects = ["wrong labels of batches"]
    code, found, errors = machine.accept()
    assert (code, list(failed(found))) == (1, ["labels"])
    why = failed(found)["labels"]
    assert why.startswith("12 answers differ")  # six texts, with graphs and without
    assert "(cuda_graphs, batch32): '店很好' is bad and on the CPU good" in why
    assert '"score": ' in errors


def test_a_gpu_without_graphs_is_a_failure(machine: Machine) -> None:
    machine.defects = ["no graphs"]
    code, found, _ = machine.accept()
    assert failed(found) == {"cuda_graphs": "0 CUDA graphs were in use", "memory": "not run: it needs cuda_graphs"}
    assert (code, found["goal"]) == (1, {"batch1_ms": 0.3, "measured_ms": None, "met": False})
    assert found["steps"]["labels"]["compared"] == ["plain_cuda"]


def test_an_error_of_the_runtime_is_the_reason(machine: Machine) -> None:
    machine.defects = ["broken file"]
    code, found, _ = machine.accept()
    assert (code, sorted(failed(found))) == (1, ["cuda_graphs", "labels", "memory", "plain_cuda"])
    assert "exit code 5; onnxruntime" in failed(found)["cuda_graphs"]
    assert "cannot load model.onnx" in failed(found)["cuda_graphs"]


def test_steps_that_do_not_need_a_failed_one_still_run(machine: Machine) -> None:
    machine.answers["doctor"][1]["checks"].append(
        {"check": "gpu", "ok": False, "what": "the driver is too old", "why": "12.0", "fix": "a newer one"}
    )
    machine.answers["doctor"][0] = 4
    code, found, errors = machine.accept()
    assert (code, failed(found)) == (1, {"doctor": "exit code 4; the driver is too old: 12.0"})
    assert "    progress of doctor" in errors.splitlines()

    machine.answers["install"] = [5, {"error": {"what": "the self-test failed", "why": "a logit differs"}}]
    code, found, _ = machine.accept()
    assert found["steps"]["install"]["why"] == "exit code 5; the self-test failed: a logit differs"
    rest = {found["steps"][name]["why"] for name in STEPS[2:6]}
    assert (code, rest) == (1, {"not run: it needs install"})
    assert found["steps"]["memory"]["why"] == "not run: it needs cuda_graphs, plain_cuda"


def test_a_gate_that_does_not_pass_is_a_failure(machine: Machine) -> None:
    check = {"gate": "latency.p95_ms", "verdict": "inconclusive", "detail": "too few texts"}
    rows = {"gate": "accuracy.min", "why": "there are no rows", "waived": False}
    machine.answers["gate"] = [7, {**machine.answers["gate"][1], "checks": [check], "unmeasured": [rows]}]
    wanted = "exit code 7; latency.p95_ms: too few texts; accuracy.min: there are no rows"
    assert failed(machine.accept()[1]) == {"gate": wanted}


def test_memory_of_the_gpu_must_be_known(machine: Machine) -> None:
    machine.program("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    code, found, _ = machine.accept()
    assert (code, list(failed(found))) == (1, ["memory"])
    assert "nvidia-smi did not report" in failed(found)["memory"]


def test_the_run_ends_at_its_time_limit_with_all_its_processes(machine: Machine) -> None:
    machine.shell = f"sleep 600 &\necho $! > {machine.folder}/pid\nwait"
    code, found, _ = machine.accept("--seconds-limit", "3")
    assert code == 1 and sorted(failed(found)) == sorted(STEPS)
    assert found["steps"]["doctor"]["why"] == "it was ended at the time limit of 3 s"
    assert found["steps"]["install"]["why"] == "not run: the time limit of 3 s is over"
    pid = int((machine.folder / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert list((machine.folder / "tmp").iterdir()) == []
