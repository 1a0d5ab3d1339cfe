"""Tasks of a sweep: their order, their ends, and the engines that start processes without training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from edgepack.build.recipe_stages import RecipeStages, stages_of
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.recipe import loader
from edgepack.sweep import local, ray_cluster
from edgepack.sweep.local import LocalEngine
from edgepack.sweep.ray_cluster import RayEngine
from edgepack.sweep.tasks import SweepTask, TaskResources, TaskResult, sweep
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles
from edgepack.training.devices import VISIBLE_VARIABLE

RECIPE = """\
edgepack: 1
name: many
version: 0.1.0
data: {train: "builtin:reviews-zh"}
teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 1}}, max_length: 8}
student: {max_length: 8, distill: null}
search:
  over:
    student.model: [{scratch: {layers: 1, hidden: 8, heads: 1}}, {scratch: {layers: 1, hidden: 16, heads: 1}}]
    quantize.method: [dynamic, none]
"""


class Recorder:
    """An engine that runs nothing. `broken`: names of tasks that fail."""

    def __init__(self, *broken: str, log: str = "error: no room\n  why: it is full\n") -> None:
        self.broken, self.log = broken, log
        self.ran: list[tuple[str, ...]] = []

    def run(self, tasks: Sequence[SweepTask], resources: TaskResources, progress: Progress) -> Iterator[TaskResult]:
        for task in tasks:
            self.ran.append(task.arguments)
            task.log.write_text(f"one\n{self.log}", encoding="utf-8")
            yield TaskResult(task, "it ended with exit code 5" if task.name in self.broken else "", "node1", 61.0)


@pytest.fixture
def stages(tmp_path: Path) -> RecipeStages:
    file = tmp_path / "many.yaml"
    file.write_text(RECIPE, encoding="utf-8")
    profiles = load_profiles()
    return stages_of(loader.load_recipe(file, profiles), BuildContext(profiles=profiles))


def test_common_stages_come_first_and_each_student_before_its_second_user(stages: RecipeStages, tmp_path: Path) -> None:
    engine = Recorder()
    assert sweep(stages, ["build", "many.yaml"], tmp_path, engine, TaskResources(), SILENT) == []
    assert engine.ran[0] == ("build", "many.yaml", "--until", "teacher")
    assert [ran[-1] for ran in engine.ran[1:]] == ["0", "2", "1", "3"]
    assert {ran[-2] for ran in engine.ran[1:]} == {"--candidate"}


def test_a_failed_candidate_has_the_end_of_its_log(stages: RecipeStages, tmp_path: Path) -> None:
    broken = list(stages.chains)[2]
    (failure,) = sweep(stages, ["build"], tmp_path, Recorder(broken), TaskResources(), SILENT)
    assert failure.name == broken
    assert failure.error.what == f"{broken}: it ended with exit code 5"
    assert failure.error.why == "its log ends with:\nerror: no room\n  why: it is full"
    (log,) = tmp_path.glob("sweep/*/2.log")
    assert str(log) in failure.error.fix


def test_findings_in_a_recipe_belong_to_the_error(stages: RecipeStages, tmp_path: Path) -> None:
    log = "many.yaml:3: error: DATA is not set\n    fix: set it\nerror: the recipe many.yaml has 1 error\n"
    (failure,) = sweep(
        stages, ["build"], tmp_path, Recorder(next(iter(stages.chains)), log=log), TaskResources(), SILENT
    )
    assert failure.error.why == f"its log ends with:\n{log.strip()}"


def test_the_end_of_a_log_without_an_error(stages: RecipeStages, tmp_path: Path) -> None:
    log = "".join(f"{number}\n" for number in range(9))
    (failure,) = sweep(
        stages, ["build"], tmp_path, Recorder(next(iter(stages.chains)), log=log), TaskResources(), SILENT
    )
    assert failure.error.why.splitlines()[1:] == ["4", "5", "6", "7", "8"]


def test_without_the_common_stages_there_are_no_candidates(stages: RecipeStages, tmp_path: Path) -> None:
    engine = Recorder("teacher of all candidates")
    with pytest.raises(StageFailedError, match="teacher of all candidates: it ended with exit code 5"):
        sweep(stages, ["build"], tmp_path, engine, TaskResources(), SILENT)
    assert len(engine.ran) == 1


def tasks(folder: Path, *lines: tuple[str, ...]) -> list[SweepTask]:
    return [SweepTask(f"task {number}", line, folder / f"{number}.log") for number, line in enumerate(lines)]


def test_processes_of_this_machine_end_with_their_output_and_code(tmp_path: Path) -> None:
    asked = tasks(tmp_path, ("--version",), ("check", "absent.yaml"))
    ended = {one.task.name: one.why for one in LocalEngine().run(asked, TaskResources(workers=2), SILENT)}
    assert ended == {"task 0": "", "task 1": "it ended with exit code 3"}
    assert asked[0].log.read_text(encoding="utf-8").startswith("edgepack, version")
    assert "absent.yaml" in asked[1].log.read_text(encoding="utf-8")


def test_what_is_not_awaited_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def start(task: SweepTask, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        program = "pass" if task.name == "task 0" else "import time; time.sleep(600)"
        processes.append(subprocess.Popen([sys.executable, "-I", "-c", program], env=variables))
        return processes[-1]

    monkeypatch.setattr(local, "start", start)
    running = LocalEngine().run(tasks(tmp_path, (), ()), TaskResources(workers=2), SILENT)
    assert next(running).task.name == "task 0"
    assert isinstance(running, Iterator)
    running.close()  # type: ignore[attr-defined]
    assert processes[1].poll() == -15


@pytest.mark.parametrize(
    ("resources", "visible", "expected"),
    [
        (TaskResources(workers=2), None, [("1", None), ("1", None)]),
        (TaskResources(workers=2, cpus=5), "", [("5", None), ("5", None)]),
        (TaskResources(), "GPU-a,3", [("1", "GPU-a"), ("1", "3")]),
    ],
)
def test_cores_and_gpus_are_shared_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resources: TaskResources,
    visible: str | None,
    expected: list[tuple[str, str | None]],
) -> None:
    given: list[dict[str, str]] = []

    def start(task: SweepTask, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        given.append(variables)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(local, "start", start)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    if visible is None:
        monkeypatch.delenv(VISIBLE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VISIBLE_VARIABLE, visible)
    assert len(list(LocalEngine().run(tasks(tmp_path, (), ()), resources, SILENT))) == 2
    found = [(one["OMP_NUM_THREADS"], one.get(VISIBLE_VARIABLE) or None) for one in given]
    assert found == expected


def test_codes_and_signals_in_words() -> None:
    assert [local.why_failed(code) for code in (0, 4, -9)] == [
        "", "it ended with exit code 4", "it was ended by SIGKILL",
    ]  # fmt: skip


def test_without_ray_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentUnfitError, match="Ray is not installed") as caught:
        next(RayEngine().run(tasks(tmp_path, ()), TaskResources(), SILENT))
    assert "edgepack[ray]" in caught.value.fix


def test_a_task_of_ray_returns_its_end(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, ("--version",))
    why, machine, seconds = ray_cluster._run_here(task, dict(os.environ))
    assert (why, machine) == ("", os.uname().nodename)
    assert seconds > 0


@pytest.mark.parametrize("address", [None, "", "auto"])
def test_a_cluster_that_nobody_named_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """It may be of another user of the machine, and what it answers is unpickled here."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(EnvironmentUnfitError, match="RAY_ADDRESS is not set"):
        next(RayEngine().run(tasks(tmp_path, ()), TaskResources(), SILENT))
