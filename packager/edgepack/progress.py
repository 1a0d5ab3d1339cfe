"""Interface of progress reporters: bars and lines. `console.Console` implements it; `SILENT` prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


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
