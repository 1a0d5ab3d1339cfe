"""Tasks of a sweep: builds of single candidates, each in another process, which share the workspace.

An engine runs tasks; it knows neither recipes nor results. Each task is a command line of edgepack, and its output goes
to a file of the workspace, wherever it runs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from edgepack.build.recipe_stages import RecipeStages
from edgepack.build.workspace import LOGS
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.results import Failure
from edgepack.training.environment import THREADS_VARIABLE
from edgepack.util.text import counted, duration

MODULE: Final = "edgepack.cli"
_LAST_LINES: Final = 5
_FINDING: Final = re.compile(r"\S.*: error: |    fix: ")  # in a recipe, printed before the error


@dataclass(frozen=True)
class SweepTask:
    """One command line: `arguments` of edgepack. Its output is appended to `log`."""

    name: str
    arguments: tuple[str, ...]
    log: Path


@dataclass(frozen=True)
class TaskResult:
    """The end of a task: why it did not succeed ("" if it did), the machine it ran on, and its time in seconds."""

    task: SweepTask
    why: str
    machine: str
    seconds: float


@dataclass(frozen=True)
class TaskResources:
    """What each task of a sweep gets.

    Attributes:
        workers: tasks that run at the same time; None for as many as the engine has room for.
        cpus: cores of each task; None for the engine's default.
        gpus: GPUs of each task.
    """

    workers: int | None = None
    cpus: int | None = None
    gpus: int = 0


class Engine(Protocol):
    """Runs tasks somewhere."""

    def run(self, tasks: Sequence[SweepTask], resources: TaskResources, progress: Progress) -> Iterator[TaskResult]:
        """Run `tasks`, the first ones first; yield each when it has result. Tasks that run end with the iterator.

        Raises:
            EnvironmentUnfitError: the engine is not installed, or its cluster cannot be reached.
        """


def sweep(
    stages: RecipeStages,
    command: Sequence[str],
    workspace: Path,
    engine: Engine,
    resources: TaskResources,
    progress: Progress,
) -> list[Failure]:
    """Build every candidate of a search up to its export.

    The stages that all candidates need run once, before them. Candidates that share a student follow those that train
    another one, since they would wait for it.

    Args:
        command: arguments of edgepack that build the recipe.

    Returns:
        The candidates that failed.

    Raises:
        StageFailedError: a stage that all candidates need failed.
        EnvironmentUnfitError: the engine cannot be used.
    """
    folder = workspace.absolute() / LOGS / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    shared = stages.shared[-1].name
    first = _task(f"{shared} of all candidates", [*command, "--until", shared], folder, shared)
    for result in _run(engine, [first], resources, progress):
        if error := _error(result):
            raise error
    names = list(stages.chains)
    tasks = {
        name: _task(name, [*command, "--candidate", str(index)], folder, str(index)) for index, name in enumerate(names)
    }
    students = [chain.models[0] for chain in stages.chains.values()]
    turn = {name: students[:index].count(students[index]) for index, name in enumerate(names)}
    ordered = [tasks[name] for name in sorted(names, key=lambda name: turn[name])]
    errors = {result.task.name: _error(result) for result in _run(engine, ordered, resources, progress)}
    return [Failure(name, error) for name in names if (error := errors[name]) is not None]


def _task(name: str, arguments: Sequence[str], folder: Path, file: str) -> SweepTask:
    return SweepTask(name, tuple(arguments), folder / f"{file}.log")


def _run(
    engine: Engine, tasks: Sequence[SweepTask], resources: TaskResources, progress: Progress
) -> Iterator[TaskResult]:
    label = tasks[0].name if len(tasks) == 1 else counted(len(tasks), "candidate")
    with progress.task(label, len(tasks)) as bar:
        for result in engine.run(tasks, resources, progress):
            state = "failed" if result.why else "done"
            where = f" on {result.machine}" if result.machine else ""
            progress.line(f"{result.task.name}: {state} in {duration(result.seconds)}{where}")
            bar.advance()
            yield result


def _error(result: TaskResult) -> StageFailedError | None:
    """The error of a task, with the one that ends its log; None if it succeeded."""
    if not result.why:
        return None
    task = result.task
    lines = task.log.read_text(encoding="utf-8", errors="replace").splitlines() if task.log.is_file() else []
    first = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=0)
    while first and _FINDING.match(lines[first - 1]):
        first -= 1
    first = first or max(0, len(lines) - _LAST_LINES)
    return StageFailedError(
        f"{task.name}: {result.why}",
        why="\n".join(["its log ends with:", *lines[first:]]),
        fix=f"fix it and rerun: finished candidates are reused; the whole log is {task.log}",
    )


def environment(resources: TaskResources) -> dict[str, str]:
    """The environment of a task: that of this process, with the threads of its cores."""
    threads = {} if resources.cpus is None else {THREADS_VARIABLE: str(resources.cpus)}
    return {**os.environ, **threads}
