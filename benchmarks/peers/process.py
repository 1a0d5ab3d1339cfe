"""The driver's side of `worker.py`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from peers.registry import Backend, Environment

HERE: Final = Path(__file__).resolve().parent.parent
_TAIL: Final = 4000  # characters of what a process said before it failed
# No library of a peer tells its makers that it ran, or looks for files on a hub.
_QUIET: Final = {
    "HF_HUB_OFFLINE": "1", "OLIVE_DISABLE_TELEMETRY": "1", "ORT_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false", "GLOG_minloglevel": "2", "PYTHONWARNINGS": "ignore",
}  # fmt: skip


@dataclass(frozen=True)
class Burst:
    """Some texts of one length, one after the other. Wall-clock times of each; the processor's, a mean of them."""

    tokenize_ms: tuple[float, ...]
    run_ms: tuple[float, ...]
    cpu_ms: float

    @property
    def total_ms(self) -> list[float]:
        return [first + second for first, second in zip(self.tokenize_ms, self.run_ms, strict=True)]


class BackendFailed(Exception):
    """A process ended with an error; the message is the end of what it said."""


class Process:
    """A worker that has opened its model. Close it."""

    def __init__(self, command: Sequence[str], log: Path, threads: int) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=_environment(threads),
                text=True, encoding="utf-8",
            )  # fmt: skip
        told = self._read()
        self.file_bytes, self.versions = int(told["bytes"]), dict(told["versions"])

    def time(self, texts: Sequence[str], uncounted: int) -> Burst:
        """Answer each of `texts`, timed; the first ones before that too, uncounted."""
        told = self._ask({"time": list(texts), "uncounted": uncounted})
        return Burst(tuple(told["tokenize_ms"]), tuple(told["run_ms"]), told["cpu_ms"])

    def logits(self, texts: Sequence[str]) -> list[list[float]]:
        """One list a text."""
        return list(self._ask({"score": list(texts)})["logits"])

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        return list(self._ask({"ids": list(texts)})["ids"])

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise BackendFailed(_end_of(self._log))
        document: dict[str, Any] = json.loads(line)
        return document


def prepare(backend: Backend, pythons: Mapping[Environment, str], source: Path, out: Path, log: Path) -> None:
    """Make the files of a backend unless an earlier run has; they lie in `out`.

    Raises:
        BackendFailed: they could not be made.
    """
    if (out / "done").exists():
        return
    _require(pythons[backend.made_in])
    out.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        command = [pythons[backend.made_in], "-m", "peers.worker", "prepare", backend.module, str(source), str(out)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=_environment(1), check=False
        )
    if done.returncode != 0:
        raise BackendFailed(_end_of(log))
    (out / "done").touch()


def serve(
    backend: Backend, pythons: Mapping[Environment, str], source: Path, out: Path, threads: int, log: Path
) -> Process:
    """Open what `prepare` made.

    Raises:
        BackendFailed: it cannot be opened.
    """
    _require(pythons[backend.run_in])
    command = [
        pythons[backend.run_in],
        "-m",
        "peers.worker",
        "serve",
        backend.module,
        str(source),
        str(out),
        backend.variant,
    ]
    return Process([*command, str(threads)], log, threads)


def _require(python: str) -> None:
    if not Path(python).exists():
        raise BackendFailed(f"there is no {python}")


def _environment(threads: int) -> dict[str, str]:
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **_QUIET, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-_TAIL:]
