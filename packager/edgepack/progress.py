"""How a stage tells what it is doing, without knowing who listens.

`console.Console` draws it; tests and library callers pass `SILENT`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One running bar."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move on by `steps` of the bar's total; `note` (a loss, a file name) replaces the last one."""


class Progress(Protocol):
    """What a stage may say while it runs."""

    def task(self, label: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        """Open a bar of `total` steps, `done` of which are behind already; it closes with the context."""

    def line(self, text: str) -> None:
        """Print one line above the bars: a choice that was made, a figure that is known."""


class _SilentTask:
    def advance(self, steps: int = 1, note: str = "") -> None:
        """Nobody listens."""


class _Silent:
    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        yield _SilentTask()

    def line(self, text: str) -> None:
        """Nobody listens."""


SILENT: Progress = _Silent()
