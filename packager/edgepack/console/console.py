"""Console output: progress bars, stage lines, findings, tables, errors.

Results go to stdout, everything else to stderr. A terminal gets bars and colours; a log gets a few plain lines. Text
from recipes, data and devices is printed literally.
"""

from __future__ import annotations

import io
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress import Task as RichTask
from rich.table import Table
from rich.text import Text

from edgepack.console import build_tables, gate_tables, tables
from edgepack.console.tables import STYLES, safe
from edgepack.errors import EdgepackError, RecipeInvalidError
from edgepack.messages import local, message
from edgepack.progress import SILENT, Task
from edgepack.util.text import duration, safe_lines
from edgepack_runtime.errors import unheard
from edgepack_runtime.util import columns

if TYPE_CHECKING:
    from edgepack.artifacts import BundleArtifact, LedgerRow, SelectArtifact
    from edgepack.recipe.findings import Finding
    from edgepack.results import NotRunHere

WIDTH: Final = 100  # columns of tables without a terminal and without COLUMNS
PLAIN_SECONDS: Final = 10.0  # between two lines of a task without a terminal


class Console:
    """Prints progress (it is an `edgepack.progress.Progress`), findings, errors and results.

    Args:
        quiet: print results and errors only.
        stdout, stderr: output streams; of the process by default.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._clock = clock
        self._out = _rich(stdout or sys.stdout)
        self._err = _rich(stderr or sys.stderr)
        self._bars: RichProgress | None = None
        self._open_bars = 0

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        """Open a bar of `total` steps; without a terminal print a line every few seconds. Either leaves one last line.

        Rate and remaining time do not count the first `done` steps.
        """
        if self._quiet:
            with SILENT.task(label, total, done) as silent:
                yield silent
        elif _can_show_bars(self._err):
            with self._shared_bars() as bars:
                identifier = bars.add_task(safe(label), total=total, completed=done, note="")
                task = _Task(label, total, done, self._clock, self.line, bars, identifier)
                try:
                    yield task
                finally:
                    bars.remove_task(identifier)
            task.end()  # not after an error, which is the last line then
        else:
            task = _Task(label, total, done, self._clock, self.line)
            yield task
            task.end()

    def line(self, text: str) -> None:
        """Print one line of progress above the bars."""
        if not self._quiet:
            _print(self._err, Text("      " + safe_lines(local(text), "      ")))

    def stage(self, name: str, index: int, total: int, cached: bool, why: str = "") -> None:
        """Print that a stage starts (`index` from 1 of `total`) and why, or that its result is cached."""
        if not self._quiet:
            line = Text(f"[{index}/{total}] ", style="dim").append(safe(name), style="bold")
            note = "cached" if cached else safe(why)
            _print(self._err, line.append(f" ({note})", style="dim") if note else line)

    def stage_done(self, name: str, seconds: float) -> None:
        """Print that the last stage ended after `seconds`."""
        self.line(f"{name} done in {duration(seconds)}")

    def findings(self, findings: Sequence[Finding]) -> None:
        """Print findings as file:line, severity, reason and fix; without warnings if quiet."""
        for finding in findings:
            if self._quiet and finding.severity == "warning":
                continue
            head = Text(safe(finding.place) + ": ", style="bold")
            severity = message("say.finding", severity=message(f"warn.{finding.severity}"))
            head.append(safe(severity), style=STYLES[finding.severity])
            head.append(safe(finding.reason), style="not bold")
            _print(self._err, head.append(f"\n    {safe(message('say.fix'))}{safe(finding.fix)}", style="not bold"))

    def error(self, error: EdgepackError, verbose: bool = False) -> None:
        """Print what went wrong, why, and the fix; `verbose` adds the traceback."""
        if verbose:
            _print(self._err, Text(safe_lines("".join(traceback.format_exception(error)), "")))
        why = error.why
        if isinstance(error, RecipeInvalidError) and error.findings:
            self.findings(error.findings)
            why = ""  # the findings are printed already
        text = Text(safe(message("say.error")), style="bold red").append(safe(error.what), style="not bold default")
        for name, words in (("why", why), ("fix", error.fix)):
            if words:
                label = safe(message(f"say.{name}"))
                text.append(f"\n  {label}" + safe_lines(local(words), "       "), style="not bold default")
        _print(self._err, text)

    def ledger(self, rows: Sequence[LedgerRow]) -> None:
        """Print the ledger: accuracy, MiB and ms after each stage."""
        self.show(build_tables.ledger(rows, live=self._out.is_terminal, width=self._out.width))

    def selection(self, selected: SelectArtifact) -> None:
        """Print the candidates and the chosen one."""
        self.show(build_tables.selection(selected, live=self._out.is_terminal))

    def not_run(self, bundle: str, target: str, gate: NotRunHere, *, ungated: bool) -> None:
        """Print that this machine cannot run a gate. `ungated`: the recipe sets no gates."""
        self.show(gate_tables.not_run(bundle, target, gate, ungated=ungated))

    def gate(self, receipt: Mapping[str, Any]) -> None:
        """Print a gate receipt: verdict, checks, reasons, and conditions. On a terminal, lines wrap between words."""
        live = self._out.is_terminal
        for part in gate_tables.gate(receipt, live=live, width=self._out.width):
            if live:
                self._out.print(part)  # `show` prints texts without wrapping them
            else:
                self.show([part])

    def checks(self, bundles: Sequence[BundleArtifact]) -> None:
        """Print the content checks of each bundle."""
        self.show(tables.checks(bundles, live=self._out.is_terminal))

    @property
    def is_terminal(self) -> bool:
        """Whether results go to a terminal."""
        return self._out.is_terminal

    @property
    def width(self) -> int:
        """Columns of the output of results."""
        return self._out.width

    def show(self, parts: Iterable[Table | Text]) -> None:
        """Print results: tables and lines."""
        for part in parts:
            if isinstance(part, Text):
                _print(self._out, part)
            else:
                self._out.print(part)

    def closing(self, lines: Sequence[str]) -> None:
        """Print the files that were written and the next commands, after an empty line."""
        self._out.print(Text("\n" + "\n".join(safe(line) for line in lines)), soft_wrap=True)

    @contextmanager
    def _shared_bars(self) -> Iterator[RichProgress]:
        """One display for all open bars: rich allows no second one."""
        if self._bars is None:
            self._bars = RichProgress(
                TextColumn("      {task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
                _Rate(),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[note]}", markup=False),
                console=self._err,
                transient=True,
            )
            self._bars.start()
        self._open_bars += 1
        try:
            yield self._bars
        finally:
            self._open_bars -= 1
            if self._open_bars == 0:
                self._bars.stop()
                self._bars = None


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: RichTask) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="dim")


class _Task:
    """A running task: advances its bar, or prints a line every few seconds."""

    def __init__(
        self,
        label: str,
        total: int,
        done: int,
        clock: Callable[[], float],
        line: Callable[[str], None],
        bars: RichProgress | None = None,
        identifier: TaskID = TaskID(0),  # noqa: B008 (TaskID is int, which never changes)
    ) -> None:
        self._label, self._total, self._clock, self._line = label, total, clock, line
        self._bars, self._identifier = bars, identifier
        self._first = self._done = done
        self._note = ""
        self._started = self._last_line_at = clock()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance by `steps`; an empty note keeps the last one."""
        self._done += steps
        self._note = note or self._note
        now = self._clock()
        if self._bars is not None:
            self._bars.update(self._identifier, completed=self._done, note=safe(self._note))
        elif now - self._last_line_at >= PLAIN_SECONDS and self._done < self._total:
            self._last_line_at = now
            rate = (self._done - self._first) / (now - self._started)
            left = f", {duration((self._total - self._done) / rate)} left" if rate else ""
            self._say(f"{self._done}/{self._total} ({self._done / self._total:.0%}), {rate:.1f}/s{left}")

    def end(self) -> None:
        seconds = self._clock() - self._started
        rate = f" ({(self._done - self._first) / seconds:.1f}/s)" if seconds else ""
        self._say(f"{self._done}/{self._total} in {duration(seconds)}{rate}")

    def _say(self, words: str) -> None:
        self._line(f"{self._label}: {words}" + (f", {self._note}" if self._note else ""))


class _Tolerant(io.TextIOBase):
    """A stream, such as a log under LANG=C, that escapes characters which its encoding cannot represent.

    It also escapes commands to a CI server: where a cell of a table wraps, a command in it may begin a line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        self._stream.write(unheard(text).encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


class _RaisingConsole(RichConsole):
    """A rich console that raises BrokenPipeError instead of exiting with 1."""

    def on_broken_pipe(self) -> None:
        raise  # rich calls this where it handles the error


def _rich(stream: TextIO) -> RichConsole:
    tolerant: Any = _Tolerant(stream)
    console = _RaisingConsole(file=tolerant, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = columns.asked() or WIDTH  # a log has no width
    return console


def _can_show_bars(console: RichConsole) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


def _print(console: RichConsole, text: Text) -> None:
    """Print lines without wrapping them, so that paths can be copied and logs searched.

    In a log for which COLUMNS is set, lines go on between words, indented.
    """
    if console.is_terminal or columns.asked() is None:
        console.print(text, soft_wrap=True)
        return
    for line in text.split("\n", allow_blank=True):
        if columns.width(line.plain) <= console.width:
            console.print(line, soft_wrap=True)
            continue
        margin = len(line.plain) - len(line.plain.lstrip())
        body, room = line[margin:], console.width - margin - 2
        for number, part in enumerate(body.divide(columns.breaks(body.plain, room))):
            part.rstrip()
            console.print(Text(" " * (margin + 2 * (number > 0))).append(part), soft_wrap=True)
