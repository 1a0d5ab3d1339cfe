"""Leases: locks of processes on any machines that share a folder.

A lease is a file with a number, `NAME.1`. The next holder creates the next number, which only one process can: every
file system creates a file once (`O_EXCL`), NFS too, while flock may hold on one machine only. The holder touches its
file; one that was not touched for `EXPIRES_SECONDS` is that of a machine that is gone. On the machine of the holder the
process decides instead: after a killed build the next one does not wait. A lease needs no space on the disk, or a full
one could not be cleaned.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from edgepack_runtime.util.fs import NEW_FILE

EXPIRES_SECONDS: Final = 60.0
_TOUCH_SECONDS: Final = 10.0
_RELEASED: Final = 0.0  # date of a file, in seconds since 1970


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease.

    Attributes:
        kernel: boot identifier and namespace, in which `pid` has a meaning.
        started: ticks from boot to its start, since the system gives numbers of processes again; -1 if unknown.
    """

    host: str
    kernel: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @staticmethod
    def this_process() -> Holder:
        """The holder that this process would be."""
        pid = os.getpid()
        return Holder(socket.gethostname(), _kernel(), pid, _started(pid))


UNKNOWN: Final = Holder("an unknown machine", "", 0, 0)  # it has not written its file, or the disk is full


class Lease:
    """A lease that this process holds, alone or with others. `release` it."""

    def __init__(self, file: Path, *, shared: bool) -> None:
        self._file, self._shared = file, shared
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._touch, name=f"lease of {file.name}", daemon=True)
        self._thread.start()

    def _touch(self) -> None:
        while not self._ended.wait(_TOUCH_SECONDS):
            with suppress(OSError):  # a network that is away for a moment; if it stays away, the lease expires
                os.utime(self._file)  # with the clock of the file server

    def release(self) -> None:
        """Give the lease back. If that cannot be written, it ends with the process."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            if self._shared:
                self._file.unlink()
            else:  # its number must not be free again
                os.utime(self._file, (_RELEASED, _RELEASED))


def take(name: Path) -> Lease | Holder:
    """Hold `name` alone, or return a process that holds it. The folder must exist.

    Raises:
        OSError: a file cannot be written.
    """
    files = _files(name)
    for other in files.values():
        current = _holder(other)
        if current is not None:
            return current
    file = _next(name, files)
    return Lease(file, shared=False) if _create(file) else _holder(file) or UNKNOWN


def share(name: Path) -> Lease:
    """Hold `name` beside others. The folder must exist.

    Raises:
        OSError: a file cannot be written.
    """
    before = _files(name)
    while not _create(file := _next(name, _files(name))):
        pass  # another process was faster
    for other in before.values():  # now that the next number is taken, nobody creates one of these again
        if _holder(other) is None:
            other.unlink(missing_ok=True)  # of a killed process
    return Lease(file, shared=True)


def holders(name: Path) -> list[Holder]:
    """The processes that hold `name`."""
    return [found for file in _files(name).values() if (found := _holder(file)) is not None]


def remove(name: Path) -> None:
    """Remove the files of a lease that nobody holds or will take."""
    for file in _files(name).values():
        file.unlink(missing_ok=True)


def _create(file: Path) -> bool:
    """Write this process into a new file; False if the file exists."""
    try:
        descriptor = os.open(file, NEW_FILE, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, json.dumps(asdict(Holder.this_process())).encode("ascii"))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    finally:
        os.close(descriptor)
    return True


def _files(name: Path) -> dict[int, Path]:
    """The files of a lease by number."""
    files = {file.name.removeprefix(f"{name.name}."): file for file in name.parent.glob(f"{name.name}.*")}
    return {int(number): file for number, file in files.items() if number.isdecimal()}


def _next(name: Path, files: Mapping[int, Path]) -> Path:
    """The file with the number after those of `files`."""
    return name.with_name(f"{name.name}.{max(files, default=0) + 1}")


def _holder(file: Path) -> Holder | None:
    """The holder that `file` names, if it still runs."""
    try:
        text = file.read_text(encoding="ascii")
        touched = file.stat().st_mtime
    except FileNotFoundError:
        return None
    if touched == _RELEASED:
        return None
    try:
        found = Holder(**json.loads(text))
    except (ValueError, TypeError):  # being written
        found = UNKNOWN
    if found.kernel == _kernel() and found.started >= 0:
        return found if _started(found.pid) == found.started else None
    return found if _now(file.parent) - touched < EXPIRES_SECONDS else None


def _now(folder: Path) -> float:
    """The time by the clock that dates the files of `folder`, in seconds since 1970."""
    with tempfile.TemporaryFile(dir=folder) as new:
        os.utime(new.fileno())
        return os.fstat(new.fileno()).st_mtime


def _kernel() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> int:
    """Ticks from boot to the start of a process; -1 if it has ended (/proc/PID/stat, man 5 proc_pid_stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    state, *fields = stat.rpartition(")")[2].split()
    return -1 if state in "ZX" else int(fields[18])  # a zombie has ended, and its parent has not asked yet
