"""Tasks as a job array of Slurm. Its own variables choose partition, account and time: SBATCH_PARTITION and others."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import Progress
from edgepack.sweep.tasks import MODULE, Ended, Share, SweepTask, environment
from edgepack.util.process import find_program

_MOST_SECONDS: Final = 600.0  # without an answer of its controller
_POLL_SECONDS: Final = 2.0  # far below MinJobAge, after which Slurm forgets a job (300 s)
# Job states that do not change any more (squeue(1)); a job on a node that failed is queued again.
_ENDED: Final = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)
_NAME: Final = "edgepack"
_FIX: Final = "run it where Slurm's commands work: `sinfo` lists the nodes"


class SlurmEngine:
    """Runs tasks as one array of jobs, and polls their states."""

    def run(self, tasks: Sequence[SweepTask], share: Share, progress: Progress) -> Iterator[Ended]:
        """As `Engine.run`. Jobs that are not finished are cancelled with the iterator."""
        job = _submit(tasks, share)
        progress.line(f"submitted job {job}, {len(tasks)} in its array")
        started: dict[int, float] = {}
        ended: set[int] = set()
        answered = time.monotonic()
        try:
            while len(ended) < len(tasks):
                time.sleep(_POLL_SECONDS)
                try:
                    states = _states(job)
                except StageFailedError:
                    if time.monotonic() - answered > _MOST_SECONDS:
                        raise
                    continue  # its controller is being restarted
                answered = time.monotonic()
                for index, task in enumerate(tasks):
                    state, node = states.get(index, ("forgotten by Slurm", ""))
                    if index in ended or state in ("PENDING", "CONFIGURING", "REQUEUED"):
                        continue
                    if index not in started:
                        started[index] = time.monotonic()
                        progress.line(f"{task.name}: started{node and f' on {node}'}")
                    if state in _ENDED or index not in states:
                        ended.add(index)
                        why = "" if state == "COMPLETED" else f"its job {job}_{index} is {state}"
                        yield Ended(task, why, node, time.monotonic() - started[index])
        finally:
            if len(ended) < len(tasks):
                try:
                    _slurm(["scancel", job])
                except StageFailedError as error:
                    progress.line(f"job {job} may still run: `scancel {job}` ends it ({error.why})")


def _submit(tasks: Sequence[SweepTask], share: Share) -> str:
    most = "" if share.workers is None else f"%{share.workers}"
    options = [f"--array=0-{len(tasks) - 1}{most}", f"--job-name={_NAME}", "--requeue", "--output=/dev/null"]
    options += [] if share.cpus is None else [f"--cpus-per-task={share.cpus}"]
    options += [f"--gpus-per-task={share.gpus}", "--ntasks=1"] if share.gpus else []
    answer = _slurm(["sbatch", "--parsable", *options], script(tasks), environment(share))
    return answer.strip().partition(";")[0]  # a cluster's name may follow


def script(tasks: Sequence[SweepTask]) -> str:
    """The script of the jobs: each runs the command line of its index."""
    lines = ["#!/bin/sh", 'case "$SLURM_ARRAY_TASK_ID" in']
    for index, task in enumerate(tasks):
        command = shlex.join([sys.executable, "-I", "-m", MODULE, *task.arguments])
        lines.append(f"{index}) exec {command} >>{shlex.quote(str(task.log))} 2>&1 </dev/null ;;")
    return "\n".join([*lines, "esac", ""])


def _states(job: str) -> dict[int, tuple[str, str]]:
    """State and node of each job of an array, by index."""
    found = {}
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={_NAME}", "--me", "--format=%F|%K|%T|%N"]
    for line in _slurm(command).split():
        number, index, state, node = line.split("|")
        if number == job:
            found[int(index)] = (state, node)
    return found


def _slurm(command: Sequence[str], text: str = "", variables: dict[str, str] | None = None) -> str:
    program = find_program(command[0])
    if program is None:
        raise EnvironmentUnfitError(f"{command[0]} is not installed", why="it comes with Slurm", fix=_FIX)
    ran = subprocess.run(
        [program, *command[1:]], input=text, env=variables, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise StageFailedError(f"{command[0]} failed", why=ran.stderr.strip(), fix=_FIX)
    return ran.stdout
