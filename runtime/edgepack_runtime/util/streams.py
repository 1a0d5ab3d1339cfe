"""Standard streams of a command that are closed, or that cannot be written."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING

from edgepack_runtime.util.signals import exit_code

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READER_GONE = exit_code(signal.SIGPIPE)


def open_closed() -> None:
    """Redirect standard streams that are closed (`>&-`) to /dev/null.

    Otherwise a file that is opened later would get their descriptor, and the output of child processes would go into
    it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            redirect_to_devnull(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(_nowhere(), mode, encoding="utf-8"))


def redirect_to_devnull(*numbers: int) -> None:
    """Redirect file descriptors to /dev/null, because Python flushes their buffers again at exit."""
    nowhere = _nowhere()
    for number in numbers:
        os.dup2(nowhere, number)
        os.set_inheritable(number, True)  # also where it is the one that was free, and `nowhere` itself
    if nowhere not in numbers:
        os.close(nowhere)


def go_on_without_stderr() -> None:
    """Drop what cannot be written to standard error (full disk, closed pipe or terminal).

    Lost messages must not interrupt an install or change a verdict, which the exit code reports too. A replaced
    `sys.stderr` is left alone.
    """
    own = sys.__stderr__
    if own is not None and sys.stderr is own:
        raw = io.BufferedWriter(_Spare(own.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, own.encoding, own.errors, line_buffering=True)


class _Spare(io.FileIO):
    """A file that drops text which cannot be written."""

    def write(self, data: ReadableBuffer) -> int:
        size = memoryview(data).nbytes
        try:
            return super().write(data) or size  # None if it would block, which the buffer above would treat as an error
        except OSError as error:
            # A disk may have room again, for the log of a server. A reader does not return, and SIGPIPE would end the
            # programs that inherit the stream.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                redirect_to_devnull(self.fileno())
            return size


def _nowhere() -> int:
    """A descriptor of /dev/null; of an empty file in memory where the system has none."""
    try:
        return os.open(os.devnull, os.O_RDWR)
    except FileNotFoundError:
        return os.memfd_create("null")
