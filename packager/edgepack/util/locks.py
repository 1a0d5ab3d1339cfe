"""Locks of processes that share a folder: `flock`, which ends with its process, and which NFS 4 has on all clients."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

UNKNOWN: Final = "an unknown process"
_MOST_READ: Final = 200  # bytes; a name of a host has at most 64
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe does not block


class Lock:
    """A lock that this process holds until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. Its file stays: who removes it must exclude all who open it."""
        os.close(self._descriptor)


def take(file: Path, *, shared: bool = False) -> Lock | str:
    """Hold the lock of `file`, alone or `shared` with others; or return the last process that took it, in words.

    What the file holds is for messages only, and decides nothing.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    descriptor = os.open(file, _FLAGS, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        with suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode("ascii", "replace"), 0)
    except BlockingIOError:
        found = _taker(descriptor)
        os.close(descriptor)
        return found
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(descriptor)


def _taker(descriptor: int) -> str:
    try:
        text = os.pread(descriptor, _MOST_READ, 0).decode("ascii")
    except (OSError, ValueError):  # a pipe; not ours
        return UNKNOWN
    return text if text.startswith("process ") and text.isprintable() else UNKNOWN
