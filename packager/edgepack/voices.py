"""Progress of several that speak at once: each line and bar begins with the name of the one it is of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from edgepack.progress import Progress, Task


class Voice:
    """Progress of the one called `name`; empty: it is alone, and needs none. All share one `lock`."""

    def __init__(self, progress: Progress, name: str, lock: threading.Lock) -> None:
        self._progress, self._lock, self.name = progress, lock, name
        self._head = f"{name}: " if name else ""
        self._silent = False

    def silence(self) -> None:
        """No line from here on: what an interrupted one still has to say is about the interruption, and untrue."""
        with self._lock:
            self._silent = True

    def line(self, text: str) -> None:
        with self._lock:
            if not self._silent:
                self._progress.line(self._head + text)

    def task(self, label: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        return self._task(label, total, done)

    @contextmanager
    def _task(self, label: str, total: int, done: int) -> Iterator[Task]:
        with self._lock:
            inner = self._progress.task(self._head + label, total, done)
            task = inner.__enter__()
        try:
            yield _Turns(task, self._lock)
        finally:
            with self._lock:
                inner.__exit__(None, None, None)


class _Turns:
    """A task that several threads' tasks are drawn beside."""

    def __init__(self, task: Task, lock: threading.Lock) -> None:
        self._task, self._lock = task, lock

    def advance(self, steps: int = 1, note: str = "") -> None:
        with self._lock:
            self._task.advance(steps, note)
