"""Signals and standard streams of a command: SIGTERM and SIGHUP end it in order, as Ctrl-C does.

A CI server cancels with SIGTERM, and a terminal that is closed sends SIGHUP. Without a handler the command would be
gone at once, and a gate that it started would go on for minutes on the same cores.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_NUMBERS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Within the block, have them raise SystemExit with the code that a shell reports of them.

    Yields the list that they will stand in: a library that was just being loaded makes an error of its own of it. One
    that is ignored, as SIGHUP under nohup, stays so. Python lets no other thread than the main one have handlers.
    """
    arrived: list[int] = []

    def end(number: int, frame: FrameType | None) -> NoReturn:
        arrived.append(number)
        raise SystemExit(exit_code(number))

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _NUMBERS if here}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def take_back() -> None:
    """Have them go where Python knows them to go, after a library has taken them for itself.

    Paddle does when it is imported, behind Python's back: its handler prints a trace and ends the process at once.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if handler is not None:  # else it was set by others than Python before we came
                signal.signal(number, handler)


def exit_code(number: int) -> int:
    """143 of SIGTERM, 129 of SIGHUP."""
    return 128 + number


READER_GONE: Final = 128 + 13  # as a shell reports SIGPIPE
STDOUT: Final = "standard output"


def open_closed() -> None:
    """Have the streams that the process was started without (`>&-`) lead nowhere.

    Their numbers first: a file that is opened later would get one of them, and what a program started from here prints
    would end up in that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            lead_nowhere(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for as long as we run


def lead_nowhere(*numbers: int) -> None:
    """Have file descriptors lead nowhere: Python fails on what is left in a buffer once more at its end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nowhere, number)
        os.set_inheritable(number, True)  # also where it is the one that was free, and `nowhere` itself
    if nowhere not in numbers:
        os.close(nowhere)


def go_on_without_stderr() -> None:
    """Have standard error lead nowhere from the moment that it cannot be written: its disk is full, its reader left.

    Progress and messages are not worth a verdict, and what a gate or a build found is told by its exit code as well.
    For all who print there, libraries too. A stream that stands in for that of the process is left alone.
    """
    own = sys.__stderr__
    if own is not None and sys.stderr is own:
        raw = io.BufferedWriter(_Spare(own.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, own.encoding, own.errors, line_buffering=True)


def name_stdout() -> None:
    """Have an error of standard output bear the name `STDOUT`: other errors without a file name are none of it.

    A stream that stands in for that of the process is left alone.
    """
    own = sys.__stdout__
    if own is not None and sys.stdout is own:
        raw = io.BufferedWriter(_Output(own.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, own.encoding, own.errors, line_buffering=own.line_buffering)


class _Output(io.FileIO):
    """A file whose errors bear its name, except that its reader left."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            written = super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = STDOUT
            raise
        if written is None:  # it would block
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), STDOUT)
        return written


class _Spare(io.FileIO):
    """A file whose text may be lost."""

    def write(self, data: ReadableBuffer) -> int:
        size = memoryview(data).nbytes
        try:
            return super().write(data) or size  # nothing, where it would block: the buffer above would fail of that
        except OSError:
            lead_nowhere(self.fileno())  # for good: half a line, and others an hour later, are of no use to anybody
            return size


@contextmanager
def read_by_somebody() -> Iterator[None]:
    """End with 141 where whoever reads the output has had enough of it.

    To be had inside of click's `main`, which would end with 1.
    """
    try:
        yield
    except BrokenPipeError:
        lead_nowhere(1, 2)
        sys.exit(READER_GONE)
