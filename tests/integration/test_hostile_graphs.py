"""Graphs of somebody else that were made to harm the build: each ends it with one error, and reaches nothing."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from tests.unit.onnx_graph.imported_texts import model
from tests.unit.sandbox import jobs
from tests.unit.sandbox.attacks import endless

from edgepack.errors import StageFailedError
from edgepack.progress import SILENT
from edgepack.sandbox import runner
from edgepack_runtime.bundle.archive import Archive

from .conftest import Project
from .test_custom import write_project
from .test_imported_text import write_project as write_texts

pytestmark = pytest.mark.integration

# A program of Paddle 2: y = relu(x), and an operator that writes a parameter to a file.
SAVES = """\
import sys
import numpy as np, paddle
folder, file = sys.argv[1:]
paddle.enable_static()
with paddle.pir_utils.OldIrGuard():
    program, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, start):
        x = paddle.static.data("x", [None, 4], "float32")
        y = paddle.static.nn.fc(x, 4)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(start)
    paddle.static.save_inference_model(f"{folder}/model", [x], [y], executor, program=program)
    made = paddle.static.io.deserialize_program(open(f"{folder}/model.pdmodel", "rb").read())
    block = made.global_block()
    [weight] = [var for var in block.vars.values() if var.name.startswith("fc") and ".w_" in var.name]
    operator = block.desc._insert_op(1)
    operator.set_type("save_combine")
    operator.set_input("X", [weight.name])
    operator.set_output("Y", [])
    operator._set_attr("file_path", file)
    operator._set_attr("overwrite", True)
    operator._set_attr("save_as_fp16", False)
    operator._set_attr("save_to_memory", False)
    open(f"{folder}/model.pdmodel", "wb").write(made.desc.serialize_to_string())
"""
# paddle2onnx ends its process for this one.
ABORTS = """\
import sys, paddle
layer = paddle.nn.GroupNorm(2, 4)
spec = [paddle.static.InputSpec([None, 4, 3], "float32", name="x")]
traced = paddle.jit.to_static(layer, input_spec=spec, full_graph=True)
paddle.jit.save(traced, f"{sys.argv[1]}/model")
"""


def write_graph(program: str, *arguments: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def of_paddle(folder: Path) -> Project:
    project = write_project(folder)
    recipe = (folder / "imported.yaml").read_text(encoding="utf-8").replace("graph: model.onnx", "graph: graph")
    (folder / "imported.yaml").write_text(recipe, encoding="utf-8")
    (folder / "graph").mkdir()
    return project


def test_a_program_that_writes_a_file_is_refused_and_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, victim = of_paddle(tmp_path / "imported"), tmp_path / "authorized_keys"
    victim.write_text("kept", encoding="ascii")
    write_graph(SAVES, project.folder / "graph", victim)
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode == 5, done.stderr
    assert "model.pdmodel has operators that are not allowed: save_combine" in done.stderr
    # The second line of defence: Paddle opens it.
    monkeypatch.setattr(runner, "COMMAND", tuple(word for word in runner.COMMAND if word != "-I"))
    monkeypatch.setenv("PYTHONPATH", str(Path(jobs.__file__).parents[3]))
    job = functools.partial(jobs.open_in_paddle, project.folder / "graph/model.pdmodel")
    with pytest.raises(StageFailedError, match=r"Cannot open .*authorized_keys"):
        runner.run(job, dict, tmp_path / "out", SILENT, stage="graphs")
    assert victim.read_text(encoding="ascii") == "kept"


def test_a_library_that_ends_its_process_is_an_error_with_its_words(tmp_path: Path) -> None:
    project = of_paddle(tmp_path / "imported")
    write_graph(ABORTS, project.folder / "graph")
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode == 5, done.stderr
    assert "process of the model" in done.stderr
    assert "GroupNorm" in done.stderr


def test_a_build_whose_model_loops_ends_when_it_is_told_to(tmp_path: Path) -> None:
    rows = [{"text": "好", "label": "pos"}, {"text": "坏", "label": "neg"}] * 10
    write_texts(tmp_path, endless(model()), rows, labels="[pos, neg]", task="text-classification")
    command = [sys.executable, "-I", "-m", "edgepack.cli", "build", "imported.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, encoding="utf-8") as build:
        assert build.stderr is not None
        while "] graphs" not in (line := build.stderr.readline()):
            assert line
        started: list[int] = []
        while not any(cpu_seconds(pid) > 3 for pid in started):  # it loops
            started = children(build.pid)
            time.sleep(0.1)
            assert build.poll() is None
        build.send_signal(signal.SIGTERM)
        try:
            code = build.wait(30)
        finally:
            build.kill()
    assert code == 143
    assert not any(is_there(pid) for pid in started)


def test_a_gate_whose_model_loops_is_confined_and_ends_with_the_build(tmp_path: Path) -> None:
    """Not in the stages before: the gate runs it more often. Even SIGKILL of the build leaves nothing behind."""
    rows = [{"text": "好", "label": "pos"}, {"text": "坏", "label": "neg"}] * 24
    bomb = endless(model(end="Softmax"), in_run=1 / 5000)
    write_texts(tmp_path, bomb, rows, labels="[pos, neg]", task="text-classification")
    command = [sys.executable, "-I", "-m", "edgepack.cli", "build", "imported.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, encoding="utf-8") as build:
        assert build.stderr is not None
        while "] gate" not in (line := build.stderr.readline()):
            assert line
        started: set[int] = set()
        looping: list[int] = []
        while not looping:
            started |= descendants(build.pid)
            looping = [pid for pid in started if cpu_seconds(pid) > 4]  # no gate of this model takes so long
            time.sleep(0.2)
            assert build.poll() is None
        status = Path(f"/proc/{looping[0]}/status").read_text(encoding="ascii")
        assert "NoNewPrivs:\t1" in status
        limits = Path(f"/proc/{looping[0]}/limits").read_text(encoding="ascii")
        assert re.search(r"Max data size +[0-9]", limits)
        build.kill()
    for pid in started:
        wait_for_end(pid)


def wait_for_end(pid: int) -> None:
    for _ in range(100):
        if not is_there(pid):
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} lives on")


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    pending = [pid]
    while pending:
        try:
            below = children(pending.pop())
        except OSError:
            continue
        found.update(below)
        pending += below
    return found


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# A build whose sandbox is another program: it stands for a library that a graph has taken over.
TAKEN_OVER = """
import sys
from edgepack.sandbox import runner
runner.COMMAND = (sys.executable, "-c", {inside!r})
from edgepack.cli import main
sys.argv = ["edgepack", "build", "imported.yaml"]
main()
"""
INSIDE = """
import sys
from pathlib import Path
from edgepack.sandbox import runner
folder = Path(sys.argv[1]).parent  # the one that it may write
confine = runner.confine
def act():
{act}
runner.confine = lambda *given: (confine(*given), act())[0]
runner.main()
"""
# Files with the names that the build assembles a bundle from.
PLANTS = """
    for name in ("any/edgepack_runtime/cli/main.py", "python/lib/python3.11/encodings/__init__.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("raise SystemExit('planted')", encoding="ascii")
"""
# The files of the model folder but graphs and configuration, once they have been tried.
REPLACES = """
    end = runner.os._exit
    def ended(code):
        for file in [*folder.glob("onnx-float/*.py"), *folder.glob("onnx-float/*.txt")]:
            file.write_text(file.read_text() + "# planted", encoding="utf-8")
        end(code)
    runner.os._exit = ended
"""
# All labels are `neg`, in whatever is written of the golden rows.
RELABELS = """
    from edgepack.bundle import golden
    jsonl = golden._jsonl
    golden._jsonl = lambda rows: jsonl({{**row, **({{"label": "neg"}} if "label" in row else {{}})}} for row in rows)
    golden.tolerance = lambda *given: 1e9
"""
ROWS = [{"text": text * n, "label": label} for n in (1, 2, 3) for text, label in (("好", "pos"), ("坏", "neg"))] * 8


def taken_over(folder: Path, act: str) -> subprocess.CompletedProcess[str]:
    program = TAKEN_OVER.format(inside=INSIDE.format(act=act.format()))
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def members(folder: Path, *names: str) -> list[bytes]:
    [bundle] = (folder / "dist").glob("*.edgepack")
    with Archive(bundle) as archive:
        return [archive.read(name, 2**20) for name in names]


def test_what_a_taken_over_sandbox_plants_travels_nowhere(tmp_path: Path) -> None:
    write_texts(tmp_path, model(end="Softmax"), ROWS, labels="[pos, neg]", task="text-classification")
    done = taken_over(tmp_path, PLANTS)
    assert done.returncode == 5, done.stderr
    assert "graphs: the process of the model left 'any'" in done.stderr
    assert not list(tmp_path.glob(".edgepack/*/*/**/any"))
    # Stage `bundle` runs the model too.
    write_texts(tmp_path, model(end="Softmax"), ROWS, labels="[pos, neg]", task="text-classification")
    done = taken_over(tmp_path, PLANTS.replace("    for", "    if '.bundle-' not in str(folder): return\n    for"))
    assert done.returncode == 5, done.stderr
    assert "bundle: the process of the model left 'any'" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_the_handler_and_its_files_are_not_those_of_a_taken_over_sandbox(tmp_path: Path) -> None:
    project = write_project(tmp_path / "imported")
    done = taken_over(project.folder, REPLACES)
    assert done.returncode == 0, done.stderr
    handler, unit = (project.folder / name for name in ("handler.py", "unit.txt"))
    shipped = members(project.folder, "model/handler.py", "model/unit.txt")
    assert shipped == [handler.read_bytes(), unit.read_bytes()]


def test_the_vocabulary_and_the_rows_are_not_those_of_a_taken_over_sandbox(tmp_path: Path) -> None:
    write_texts(tmp_path, model(end="Softmax"), ROWS, labels="[pos, neg]", task="text-classification")
    done = taken_over(tmp_path, REPLACES + RELABELS)
    assert done.returncode == 0, done.stderr
    vocabulary, rows, manifest = members(tmp_path, "model/vocab.txt", "golden/rows.jsonl", "manifest.json")
    assert vocabulary == (tmp_path / "vocab.txt").read_bytes()
    assert {row["label"] for row in map(json.loads, rows.splitlines())} == {"pos", "neg"}
    assert json.loads(manifest)["model"]["golden_tolerance"] < 1


def test_a_weight_outside_of_the_folder_is_not_carried(tmp_path: Path) -> None:
    project = write_project(tmp_path / "imported")
    made = onnx.load(str(project.folder / "model.onnx"))
    for tensor in made.graph.initializer[:1]:
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "secret").write_bytes(bytes(4))
    onnx.save(made, str(project.folder / "model.onnx"))
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode == 5, done.stderr
    assert "'../secret' is not a name of a file below the folder imported" in done.stderr
