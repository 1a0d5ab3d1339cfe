"""Progress on stderr: one updated line on a terminal, a new line every 10 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional, TextIO

Log = Callable[[str], None]  # prints one line about a step
LOG_S = 10.0  # between two lines
_TERMINAL_S = 0.2  # between two updates of a line
_BAR = 20  # characters


class Progress:
    """Progress of a run that counts `unit`s.

    Args:
        unit: plural noun for the counted items.
        total: the value of `done` at the end, in any unit; None if unknown.
        stream: stderr by default.
        quiet: print nothing.
    """

    def __init__(
        self, unit: str, total: Optional[int], *, stream: Optional[TextIO] = None, quiet: bool = False
    ) -> None:
        self._unit, self._total, self._quiet = unit, total, quiet
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._begin = self._last = time.monotonic()
        self._from: Optional[int] = None  # `done` at the first report: what came before was no work of this run
        self._since = self._begin  # the time of the first report
        self._width = 0

    def update(self, count: int, before: int, done: int) -> None:
        """Report `count` units so far, `before` of them by an earlier run, and `done` of the total."""
        now = time.monotonic()
        if self._from is None:
            self._from, self._since = done, now
        if self._quiet or now - self._last < (_TERMINAL_S if self._terminal else LOG_S):
            return
        self._last = now
        self._show(self._text(count, (count - before) / (now - self._begin), done, now - self._since))

    def close(self) -> None:
        """End the updated line."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _text(self, count: int, rate: float, done: int, elapsed_s: float) -> str:
        rows = f"{count} {self._unit}  {rate:.1f}/s"
        if not self._total:
            return rows
        share = min(1.0, done / self._total)
        moved = done - (self._from or 0)
        left = f"  {_clock((self._total - done) / moved * elapsed_s)} left" if moved > 0 else ""
        full = int(share * _BAR)
        return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  {rows}{left}"

    def _show(self, text: str) -> None:
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


class Pace:
    """Times of the lines of a long step: one every `LOG_S` seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether `LOG_S` seconds have passed since the last line; if so, they start again."""
        now = time.monotonic()
        if now - self._last < LOG_S:
            return False
        self._last = now
        return True


def _clock(seconds: float) -> str:
    """`seconds` as 0:07, 12:30 or 3:05:00."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
