"""Interface of progress reporters: bars and lines. `console.Console` implements it; `SILENT` prints nothing.

`ProgressWriter` and `ProgressReader` carry the progress of another process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from edgepack_runtime.util.fs import open_regular

_MOST_LINE_BYTES: Final = 2**20
_MOST_OPEN_BARS: Final = 16  # inside of each other; ours are two


class Task(Protocol):
    """One running bar."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance the bar by `steps`; `note` (a loss, a file name) replaces the last one."""


class Progress(Protocol):
    """Progress reporter of a stage."""

    def task(self, label: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        """Open a bar of `total` steps, of which `done` are finished. It closes with the context."""

    def line(self, text: str) -> None:
        """Print one line above the bars."""


class _SilentTask:
    def advance(self, steps: int = 1, note: str = "") -> None:
        """Print nothing."""


class _Silent:
    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        yield _SilentTask()

    def line(self, text: str) -> None:
        """Print nothing."""


SILENT: Progress = _Silent()


class ProgressWriter:
    """Progress reporter that appends events to a file of JSON lines, for a `ProgressReader` in another process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        """As `Progress.task`. Bars are nested: the last one opened advances and closes."""
        self._write(open=[label, total, done])
        try:
            yield self
        finally:
            self._write(close=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """As `Task.advance`."""
        self._write(advance=[steps, note])

    def line(self, text: str) -> None:
        """As `Progress.line`."""
        self._write(line=text)

    def _write(self, **event: Any) -> None:
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")


class ProgressReader:
    """Forwards the events of a `ProgressWriter` to a progress reporter of this process.

    Args:
        bars: closes open bars when it is closed.
        most_bytes: of all events; None: any number.
    """

    def __init__(self, file: Path, progress: Progress, bars: ExitStack, most_bytes: int | None = None) -> None:
        self._file, self._progress, self._most_bytes = file, progress, most_bytes
        self._read_bytes = 0
        self._open: list[tuple[ExitStack, Task]] = []
        bars.push(self._end)

    def catch_up(self, turn_bytes: int | None = None) -> int:
        """Forward new events; return their bytes.

        Args:
            turn_bytes: no event begins after so many: who writes faster than this reads does not keep it. None: all.

        Raises:
            OSError: the file is not a regular file.
            LookupError, TypeError, ValueError: an event is none, or there are too many.
        """
        if not self._file.exists():
            return 0
        before = self._read_bytes
        with open_regular(self._file) as events:
            events.seek(before)
            while turn_bytes is None or self._read_bytes - before < turn_bytes:
                line = events.readline(_MOST_LINE_BYTES)
                if not line.endswith(b"\n"):  # it is not complete yet
                    if len(line) == _MOST_LINE_BYTES:
                        raise ValueError(f"an event has more than {_MOST_LINE_BYTES} bytes")
                    break
                self._read_bytes += len(line)
                if self._most_bytes is not None and self._read_bytes > self._most_bytes:
                    raise ValueError(f"the events have more than {self._most_bytes} bytes")
                self._forward(json.loads(line))
        return self._read_bytes - before

    def _end(self, *error: Any) -> None:
        """Close the bars that are open, the last one first."""
        closing = ExitStack()
        for bar, _ in self._open:
            closing.push(bar)
        closing.__exit__(*error)

    def _forward(self, event: dict[str, Any]) -> None:
        if "line" in event:
            self._progress.line(event["line"])
        elif "open" in event:
            if len(self._open) == _MOST_OPEN_BARS:
                raise ValueError(f"more than {_MOST_OPEN_BARS} bars are open")
            bar = ExitStack()
            self._open.append((bar, bar.enter_context(self._progress.task(*event["open"]))))
        elif "advance" in event:
            self._open[-1][1].advance(*event["advance"])
        else:
            self._open.pop()[0].close()
