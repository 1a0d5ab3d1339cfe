"""Candidates of a search side by side: on this machine, and on a Ray cluster that loses a node."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.conftest import RECIPE, SMALL_STEPS, STEPS, STUDENT, Project
from tests.model_folders import write_model

from edgepack.recipe import loader
from edgepack.targets.profile_file import load_profiles

pytestmark = pytest.mark.integration
SHAPES = ("{scratch: {layers: 1, hidden: 312, heads: 12}}", "{scratch: {layers: 2, hidden: 312, heads: 6}}")
SEARCH = f"""\
gates:
  accuracy: {{min: 0.1, confidence: 0.9}}
linear: cascade
search:
  over:
    student.model: [{", ".join(SHAPES)}]
    quantize.embeddings: [int8, float]
  prefer: size
  tolerance_points: 100
"""
# For tests that compare no bytes: a clock may choose between the files of so small a student.
SMALL = SEARCH.replace("hidden: 312, heads: 12", "hidden: 16, heads: 2").replace("312, heads: 6", "16, heads: 4")
BROKEN = """\
gates:
  accuracy: {min: 0.1, confidence: 0.9}
linear: off
quantize: {method: none}
search:
  over:
    student.model: [./broken, {scratch: {layers: 1, hidden: 16, heads: 2}}]
"""


def recipe(project: Project, folder: Path, *, steps: str = STEPS, search: str = SEARCH) -> Project:
    """A copy of the project with a search in `recipe.yaml`; data and teacher are cached."""
    copy = project.copy(folder)
    head = RECIPE.replace(STUDENT + STEPS, steps).partition("gates:\n")[0]
    (copy.folder / "recipe.yaml").write_text(head + search, encoding="utf-8")
    return copy


def bundle_digest(project: Project) -> str:
    return hashlib.sha256(project.bundle.read_bytes()).hexdigest()


def logs(project: Project) -> str:
    """What the processes of the candidates printed."""
    return "".join(file.read_text(encoding="utf-8") for file in (project.folder / ".edgepack/sweep").glob("*/*.log"))


@pytest.fixture(scope="module")
def alone(project: Project, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the bundle that a build on one machine makes."""
    copy = recipe(project, tmp_path_factory.mktemp("alone") / "project")
    done = copy.edgepack("build", "recipe.yaml")
    assert done.returncode == 0, done.stderr[-4000:]
    return bundle_digest(copy)


@pytest.mark.sweep
def test_workers_make_the_bytes_of_a_build(project: Project, tmp_path: Path, alone: str) -> None:
    copy = recipe(project, tmp_path / "project")
    done = copy.edgepack("sweep", "recipe.yaml", "--workers", "2")
    assert done.returncode == 0, done.stderr[-4000:]
    assert bundle_digest(copy) == alone
    # Two candidates share each student: one trains it, the other one waits or finds it.
    assert logs(copy).count("train student: epoch 1") == 2
    assert "train student" not in done.stderr
    assert done.stderr.count("(cached)") >= 2 + 2 + 4 + 4
    found = [line.split(":")[0].split()[0] for line in done.stderr.splitlines() if line.endswith(": started")]
    assert found[0] == "teacher"
    models = [line.split(", ")[0] for line in done.stderr.splitlines() if line.endswith(": started")][1:3]
    assert models[0] != models[1], "the first two train a student each"
    again = copy.edgepack("sweep", "recipe.yaml")
    assert again.returncode == 0
    assert logs(copy).count("train student: epoch 1") == 2


def test_one_candidate_by_name_or_index(project: Project, tmp_path: Path) -> None:
    copy = recipe(project, tmp_path / "project", steps=SMALL_STEPS, search=SMALL)
    names = [one.name for one in loader.load_recipe(copy.folder / "recipe.yaml", load_profiles()).candidates]
    by_index = copy.edgepack("build", "recipe.yaml", "--candidate", "1")
    assert by_index.returncode == 0, by_index.stderr[-4000:]
    assert by_index.stdout.splitlines()[-1].startswith("stopped after export")
    by_name = copy.edgepack("build", "recipe.yaml", "--candidate", names[1])
    assert by_name.returncode == 0
    assert by_name.stderr.count("(cached)") == by_name.stderr.count("[")
    absent = copy.edgepack("build", "recipe.yaml", "--candidate", "4")
    assert absent.returncode == 2
    assert f"3: {names[3]}" in absent.stderr


def test_a_candidate_that_fails_ends_the_sweep_or_is_left_out(project: Project, tmp_path: Path) -> None:
    copy = recipe(project, tmp_path / "project", steps=SMALL_STEPS, search=BROKEN)
    broken = copy.folder / "broken"
    write_model(broken, "{}")
    done = copy.edgepack("sweep", "recipe.yaml", "--workers", "2")
    assert done.returncode == 5, done.stderr[-4000:]
    assert "error: model=./broken: it ended with exit code 5" in done.stderr
    assert "config.json describes another model" in done.stderr
    assert not copy.bundle.exists()
    rest = copy.edgepack("sweep", "recipe.yaml", "--workers", "2", "--keep-going")
    assert rest.returncode == 5, rest.stderr[-4000:]
    assert copy.bundle.exists()
    assert "not every candidate could be built" in rest.stderr


def started(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process with a group of its own, which logs into `folder`."""
    with (folder / f"{Path(command[0]).name}.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def killed(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for up to three minutes, while `process` runs."""
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)


@pytest.fixture
def ray_nodes(tmp_path: Path) -> Iterator[tuple[dict[str, str], list[subprocess.Popen[bytes]]]]:
    """The environment of a client, and the two nodes of a cluster, of one core each."""
    program, port = Path(sys.executable).with_name("ray"), free_port()
    environment = {**os.environ, "RAY_ADDRESS": f"127.0.0.1:{port}", "EDGEPACK_CHECKPOINT_SECONDS": "0"}
    with contextlib.ExitStack() as stack:
        nodes = []
        sessions = Path("/tmp") / f"ray-{port}"  # sockets have names of at most 107 characters
        stack.callback(shutil.rmtree, sessions, ignore_errors=True)
        for place in (
            ["--head", "--port", str(port), "--include-dashboard", "false", "--temp-dir", str(sessions)],
            ["--address", environment["RAY_ADDRESS"]],
        ):
            options = ["--num-cpus", "1", "--disable-usage-stats", "--block"]
            node = started([str(program), "start", *place, *options], tmp_path, environment)
            nodes.append(node)
            stack.callback(killed, node)
            count = len(nodes)
            status = [str(program), "status", "--address", environment["RAY_ADDRESS"]]
            wait_until(
                lambda count=count, status=status: (  # type: ignore[misc]
                    f"/{count}.0 CPU" in subprocess.run(status, capture_output=True, text=True, check=False).stdout
                ),
                node,
            )
        yield environment, nodes


@pytest.mark.sweep
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray_goes_on_without_a_node_that_is_killed(
    project: Project, tmp_path: Path, ray_nodes: tuple[dict[str, str], list[subprocess.Popen[bytes]]]
) -> None:
    environment, nodes = ray_nodes
    steps = STEPS.replace("epochs: 1\n", "epochs: 20\n")
    single = recipe(project, tmp_path / "single", steps=steps)
    assert single.edgepack("build", "recipe.yaml").returncode == 0
    copy = recipe(project, tmp_path / "project", steps=steps)
    command = [sys.executable, "-I", "-m", "edgepack.cli", "sweep", "recipe.yaml", "--on", "ray"]
    sweep = started(command, copy.folder, environment)
    checkpoints = copy.folder / ".edgepack" / "student"
    wait_until(lambda: len(list(checkpoints.glob("*.partial/checkpoint/*.npz"))) == 2, sweep)
    killed(nodes[1])
    log = (copy.folder / f"{Path(sys.executable).name}.log").read_text
    assert sweep.wait(600) == 0, log()[-4000:]
    assert log().count(": done in") == 1 + 4
    assert logs(copy).count("continues at step") == 1
    assert logs(copy).count("train student: epoch 20:") == 2, "each student was trained to its end once"
    assert bundle_digest(copy) == bundle_digest(single)
