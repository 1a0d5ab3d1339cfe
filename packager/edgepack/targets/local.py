"""This machine as a target: run a bundle's own verbs as its device would, in a process that sees nothing of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import TargetUnreachableError
from edgepack.progress import Progress
from edgepack_runtime import alone, isolated

# What a device has: no HOME, no virtual environment, no Python variables.
_DEVICE_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Answer:
    """What a verb returned: its exit code, its standard output, and the last lines of its progress."""

    exit_code: int
    stdout: str
    stderr_tail: str


def run_verb(bundle: Path, verb: str, arguments: Sequence[str], progress: Progress, python: Path) -> Answer:
    """`python -I -S BUNDLE VERB ...`, its progress shown line by line.

    The interpreter `python` is isolated and sees no site-packages.

    Raises:
        TargetUnreachableError: when the process cannot be started.
    """
    environment = dict(_DEVICE_ENVIRONMENT)
    environment.update({name: os.environ[name] for name in ("TMPDIR", alone.VARIABLE) if name in os.environ})
    command = [str(python), "-I", "-S", str(bundle.resolve()), verb, *arguments]
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # However we end, it does: a gate that went on would measure beside the next one. It clears up first.
            preexec_fn=isolated.dies_with_us(signal.SIGTERM),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetUnreachableError(f"{command[0]} cannot be started", why=str(error)) from error
    assert process.stdout is not None and process.stderr is not None
    told: list[str] = []
    with process:
        try:
            for line in process.stderr:  # a verb prints its result in one piece at its end: stdout cannot fill up first
                told.append(line.rstrip())
                progress.line(told[-1])
            stdout = process.stdout.read()
        except BaseException:
            process.terminate()
            raise
    return Answer(process.returncode, stdout, "\n".join(told[-8:]))


def base_python() -> str:
    """The interpreter that the running virtual environment was made from."""
    return str(getattr(sys, "_base_executable", sys.executable))
