"""A server in a process of its own, as it is started on a device."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edgepack_runtime

RUNTIME = Path(edgepack_runtime.__path__[0]).parent
_HANGS = """
import ctypes, sys, time
from edgepack_runtime.cli.main import main
from edgepack_runtime.inference.predictor import Predictor
Predictor.timed_batch = lambda self, items, wanted: {}(3600)
sys.exit(main())
"""
SLEEPING, HOLDING_PYTHON = "time.sleep", "ctypes.PyDLL(None).sleep"  # the second one with Python's lock


class Served:
    """The process, where it listens, and what it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})
            if self.lines[-1]["event"] == "listening":
                self._listening.set()
        self._listening.set()

    def listening(self) -> Any:
        """The address, as soon as it listens there."""
        assert self._listening.wait(60)
        found = [line["address"] for line in self.lines if line["event"] == "listening"]
        assert found, self.lines
        return found[0]

    @property
    def url(self) -> str:
        return "http://127.0.0.1:{1}".format(*self.listening())

    def stop(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(30)
        return code

    def close(self) -> None:
        """Read to the end what a process that has ended logged."""
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextlib.contextmanager
def served(
    *arguments: str | Path, environment: dict[str, str] | None = None, hangs: str = "", **options: Any
) -> Iterator[Served]:
    """`edgert serve ARGUMENTS` on a free port, by default without draining; it is killed after the block.

    Args:
        hangs: how its model never answers.
    """
    program = ["-c", _HANGS.format(hangs)] if hangs else ["-m", "edgepack_runtime"]
    line = [sys.executable, *program, "serve", *map(str, arguments)]
    if not {"--uds", "--fd", "--port"} & set(line):
        line += ["--port", "0"]
    if "--drain-s" not in line:
        line += ["--drain-s", "0"]
    path = os.pathsep.join([str(RUNTIME), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])])
    inherited = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, encoding="utf-8", env=inherited, **options)
    server = Served(process)
    try:
        yield server
    finally:
        process.kill()
        process.wait()
        server.close()
