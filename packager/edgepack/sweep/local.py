"""Tasks as processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edgepack.progress import Progress
from edgepack.sweep.tasks import MODULE, SweepTask, TaskResources, TaskResult, environment
from edgepack.training.devices import VISIBLE_VARIABLE
from edgepack.util import hardware, nvidia
from edgepack_runtime.install import release_process

_POLL_SECONDS: Final = 0.1
_END_SECONDS: Final = 20.0  # time for a task to end itself


@dataclass
class _Running:
    task: SweepTask
    process: subprocess.Popen[bytes]
    slot: int
    started: float


class LocalEngine:
    """Runs tasks side by side: one for each GPU, else one at a time, or `TaskResources.workers` of them."""

    def run(self, tasks: Sequence[SweepTask], resources: TaskResources, progress: Progress) -> Iterator[TaskResult]:
        """As `Engine.run`. Tasks get equal parts of the cores, and a GPU each."""
        gpus = _gpus()
        workers = min(resources.workers or max(1, len(gpus)), len(tasks))
        cpus = resources.cpus or max(1, hardware.cores().threads // workers)
        free, waiting = list(range(workers)), list(tasks)
        running: list[_Running] = []
        try:
            while running or waiting:
                while free and waiting:
                    slot = free.pop(0)
                    variables = environment(replace(resources, cpus=cpus))
                    if gpus:
                        variables[VISIBLE_VARIABLE] = gpus[slot % len(gpus)]
                    task = waiting.pop(0)
                    progress.line(f"{task.name}: started")
                    running.append(_Running(task, start(task, variables), slot, time.monotonic()))
                time.sleep(_POLL_SECONDS)
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    free.append(one.slot)
                    code = one.process.returncode
                    yield TaskResult(one.task, why_failed(code), "", time.monotonic() - one.started)
        finally:
            for one in running:
                one.process.terminate()
            for one in running:
                try:
                    one.process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    one.process.kill()


def start(task: SweepTask, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a task with this Python. It ends when this process ends, and not by Ctrl-C itself."""
    with task.log.open("ab") as log:  # a task may start again
        return subprocess.Popen(
            [sys.executable, "-I", "-m", MODULE, *task.arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=release_process.die_with_parent(signal.SIGTERM),
        )


def why_failed(code: int) -> str:
    """Why a process that ended with `code` did not succeed; "" if it did."""
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}" if code else ""


def _gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get(VISIBLE_VARIABLE)
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(gpu.index) for gpu in nvidia.detect().gpus]
