"""Signals and standard output of a command: SIGTERM and SIGHUP end it in order, as Ctrl-C does.

A CI server cancels with SIGTERM, and a closed terminal sends SIGHUP. Without a handler the command would end at once,
and a gate that it started would continue for minutes.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from edgepack_runtime.install.release_process import die_with_parent
from edgepack_runtime.util import signals, streams

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_NUMBERS: Final = (signal.SIGTERM, signal.SIGHUP)


def find_program(name: str) -> str | None:
    """The path of a program on PATH; None without one.

    Entries that are empty or relative do not count: they mean the folder in which a command is typed.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, entries)))


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Within the block, SIGTERM and SIGHUP raise SystemExit with the shell's exit code for them.

    Yields the list of received signals, as `signals.raising`. Only the main thread can have handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    with signals.raising(_NUMBERS, lambda number: SystemExit(signals.exit_code(number))) as arrived:
        yield arrived


@contextmanager
def ended_with_block(
    command: Sequence[str],
    *,
    stdin: IO[bytes] | None = None,
    stdout: int | IO[bytes] | None,
    stderr: int | IO[bytes] | None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that the kernel kills at the end of the block, or when this process ends.

    It is sent no signal by this process: in the sandbox a process may send none on kernels before Linux 6.12. The
    parent of a process is the thread that started it, for prctl (2): the thread ends with the block.
    """
    with ThreadPoolExecutor(1) as parent:
        process = parent.submit(
            subprocess.Popen, command, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=die_with_parent()
        ).result()
        try:
            yield process
        finally:
            parent.shutdown()
            with process:  # closes its streams, and waits
                pass


def take_back() -> None:
    """Restore Python's signal handlers after Paddle's import, which installs its own without Python's knowledge.

    Paddle's handler prints a trace and ends the process at once.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if handler is not None:  # else it was set outside of Python
                signal.signal(number, handler)


STDOUT: Final = "standard output"


def name_stdout() -> None:
    """Set the file name `STDOUT` in errors of standard output, to recognise them. A replaced `sys.stdout` stays."""
    own = sys.__stdout__
    if own is not None and sys.stdout is own:
        raw = io.BufferedWriter(_StandardStream(own.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, own.encoding, own.errors, line_buffering=own.line_buffering)


class _StandardStream(io.FileIO):
    """A file whose errors have its name, except for a closed pipe."""

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


@contextmanager
def exit_on_broken_pipe() -> Iterator[None]:
    """Exit with 141 on a closed pipe of the output. Use it inside click's `main`, which would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        streams.redirect_to_devnull(1, 2)
        sys.exit(streams.READER_GONE)
