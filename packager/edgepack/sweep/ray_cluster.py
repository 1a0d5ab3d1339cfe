"""Tasks on a Ray cluster. Each of its machines has edgepack installed and mounts the workspace at the same path."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from edgepack.errors import EnvironmentUnfitError
from edgepack.progress import Progress
from edgepack.sweep import local
from edgepack.sweep.tasks import SweepTask, TaskResources, TaskResult, environment
from edgepack.training.devices import VISIBLE_VARIABLE

ADDRESS_VARIABLE: Final = "RAY_ADDRESS"
_ATTEMPTS: Final = 3  # further ones, on other machines, if a machine is lost


class RayEngine:
    """Runs tasks where the cluster has room. Those of a machine that is lost run again on another one."""

    def run(self, tasks: Sequence[SweepTask], resources: TaskResources, progress: Progress) -> Iterator[TaskResult]:
        """As `Engine.run`."""
        ray = _connected()
        remote = ray.remote(max_retries=_ATTEMPTS, num_cpus=resources.cpus or 1, num_gpus=resources.gpus)(_run_here)
        variables = environment(replace(resources, cpus=resources.cpus or 1))
        waiting = list(tasks)
        running: dict[Any, SweepTask] = {}
        try:
            while running or waiting:
                while waiting and len(running) < (resources.workers or len(tasks)):
                    task = waiting.pop(0)
                    running[remote.remote(task, variables)] = task
                (done,), _ = ray.wait(list(running))
                task = running.pop(done)
                try:
                    yield TaskResult(task, *ray.get(done))
                except ray.exceptions.RayError as error:
                    yield TaskResult(task, str(error).strip().splitlines()[-1], "", 0.0)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            ray.shutdown()


def _run_here(task: SweepTask, variables: dict[str, str]) -> tuple[str, str, float]:
    """Run a task on this machine of the cluster; return what `TaskResult` holds besides the task.

    Args:
        variables: the environment of the sweep. The GPUs are those that Ray chose.
    """
    started = time.monotonic()
    gpus = {name: os.environ[name] for name in (VISIBLE_VARIABLE,) if name in os.environ}
    code = local.start(task, {**variables, **gpus}).wait()
    return local.why_failed(code), socket.gethostname(), time.monotonic() - started


def _connected() -> Any:
    """The package, connected to the cluster of RAY_ADDRESS.

    Without an address Ray connects to any cluster of this machine, also to one of another user. Whoever runs the
    cluster gets the environment of the sweep, and runs code here: Ray unpickles what it answers.
    """
    try:
        import ray
    except ImportError as error:
        raise EnvironmentUnfitError(
            "Ray is not installed", why="--on ray needs it", fix="run `pip install 'edgepack[ray]'`"
        ) from error
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if address in ("", "auto"):
        raise EnvironmentUnfitError(
            f"{ADDRESS_VARIABLE} is not set",
            why="a Ray cluster runs code as you, so it is never looked for",
            fix=f"set it to a cluster that you trust, as in {ADDRESS_VARIABLE}=127.0.0.1:6379 after `ray start --head`",
        )
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentUnfitError(
            "no Ray cluster can be reached",
            why=f"{address}: {error}",
            fix=f"start it by `ray start --head`, or correct {ADDRESS_VARIABLE}",
        ) from error
    signal.signal(signal.SIGTERM, handler)  # Ray's own prints a trace
    return ray
