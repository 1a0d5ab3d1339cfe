"""What a process that trains tells the build that started it: progress and errors, as files of JSON. No Paddle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from edgepack import errors
from edgepack.errors import EdgepackError
from edgepack.progress import Progress, Task

_PROGRESS: Final = "progress.jsonl"
_ADVANCE_SECONDS: Final = 0.1  # between two lines about one bar
_OF_SYSTEM: Final = "OSError"


class Teller:
    """A `Progress` that writes down what it is told, for a `Listener` in another process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _PROGRESS
        self._tasks = 0

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        """As `Progress.task`."""
        self._tasks += 1
        number = self._tasks
        self.write({"open": number, "label": label, "total": total, "done": done})
        bar = _Bar(self, number)
        try:
            yield bar
            bar.flush()
        finally:
            self.write({"close": number})

    def line(self, text: str) -> None:
        """As `Progress.line`."""
        self.write({"line": text})

    def write(self, event: dict[str, Any]) -> None:
        """One event, there at once for who reads."""
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")


class _Bar:
    def __init__(self, teller: Teller, number: int) -> None:
        self._teller, self._number = teller, number
        self._steps, self._note = 0, ""
        self._written = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._steps += steps
        self._note = note or self._note
        if time.monotonic() - self._written >= _ADVANCE_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._steps or self._note:
            self._teller.write({"advance": self._number, "steps": self._steps, "note": self._note})
        self._steps, self._note = 0, ""
        self._written = time.monotonic()


class Listener:
    """Hands on to a progress of this process what a `Teller` of another one has written."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._file, self._progress = folder / _PROGRESS, progress
        self._read_bytes = 0
        self._bars: dict[int, tuple[ExitStack, Task]] = {}

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the bars that were left open, each with what ends this."""
        for stack, _ in reversed(self._bars.values()):
            stack.__exit__(kind, error, at)

    def catch_up(self) -> None:
        """Hand on what is new."""
        if not self._file.exists():
            return
        with self._file.open("rb") as told:
            told.seek(self._read_bytes)
            whole, _, _ = told.read().rpartition(b"\n")  # the last line may not be written to its end
        if whole:
            self._read_bytes += len(whole) + 1
            for line in whole.splitlines():
                self._hand_on(json.loads(line))

    def _hand_on(self, event: dict[str, Any]) -> None:
        if "line" in event:
            self._progress.line(event["line"])
        elif "open" in event:
            stack = ExitStack()
            bar = stack.enter_context(self._progress.task(event["label"], event["total"], event["done"]))
            self._bars[event["open"]] = (stack, bar)
        elif "advance" in event:
            self._bars[event["advance"]][1].advance(event["steps"], event["note"])
        else:
            self._bars.pop(event["close"])[0].close()


def write_error(folder: Path, local_rank: int, error: Exception) -> None:
    """Leave `error` for `read_errors`; one that edgepack does not raise on purpose is left as its words."""
    told: dict[str, Any]
    if isinstance(error, EdgepackError):
        told = {"kind": type(error).__name__, "what": error.what, "why": error.why, "fix": error.fix}
    elif isinstance(error, OSError) and error.errno is not None:
        told = {"kind": _OF_SYSTEM, "errno": error.errno, "strerror": error.strerror, "filename": error.filename}
    else:
        told = {"kind": "", "what": f"{type(error).__name__}: {error}"}
    temporary = _error_file(folder, local_rank).with_suffix(".tmp")
    temporary.write_text(json.dumps(told, default=str), encoding="utf-8")
    temporary.rename(_error_file(folder, local_rank))


def read_error(folder: Path, local_rank: int) -> Exception | str | None:
    """What ended a process: the error that it raised, the words of an unexpected one, or None if it left nothing."""
    file = _error_file(folder, local_rank)
    if not file.is_file():
        return None
    told = json.loads(file.read_text(encoding="utf-8"))
    kind = told.pop("kind")
    if kind == _OF_SYSTEM:
        return OSError(told["errno"], told["strerror"], told["filename"])
    if not kind:
        return str(told["what"])
    made: EdgepackError = getattr(errors, kind)(told["what"], why=told["why"], fix=told["fix"])
    return made


def _error_file(folder: Path, local_rank: int) -> Path:
    return folder / f"error.{local_rank}.json"
