"""One gate at a time on a device, whoever starts it, and how (standard library only).

Two gates would disturb each other's times. Who gates holds a lock (flock) on a file with a fixed name in each folder
that all users of the device share: of these some may be missing, private to a user or spoilt, and two gates keep apart
where one of them is the same for both. The files stay empty, and everybody may read them, which is all that a lock
needs. Somebody on the device who means harm can hold a lock, and delay us, or make a place unfit, and no more: both are
told, and nothing that lies there is written to, followed, or locked unless it is such a file.

Whoever is first holds it for what it starts: an install for its gate, and a link over SSH, which has to be alone while
it copies, for the gate there. A variable of the environment tells them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import stat
import time
from typing import Callable, Iterator, List, NamedTuple, Optional, Set, Tuple

from edgepack_runtime.errors import EnvironmentUnfitError

FILE_NAME = "edgepack-gate.lock"
FOLDERS = ("/run/lock", "/var/lock", "/tmp")  # what all users of a device share; a system has some of them
# Other folders instead of those, with ":" between them. Empty: none, as whoever started this is alone already.
VARIABLE = "EDGEPACK_GATE_LOCK"
WAIT_S = 1800.0  # for another gate to end
_LOOK_S = 0.2
_MODE = 0o444  # to be locked by everybody, and written by nobody
_ATTEMPTS = 5  # at a file that others make and remove meanwhile
Waiting = Callable[[str], None]  # called with who holds the lock, again and again; it pauses


class Held(NamedTuple):
    """Locks that are held: in which folders, and why in none of the others."""

    folders: List[str]
    unfit: List[str]


class _UnfitError(Exception):
    """The place cannot be used."""


@contextlib.contextmanager
def measuring(tell: Callable[[str], None]) -> Iterator[None]:
    """Be the only one who measures on this device, as far as `held` can; `tell` gets what there is to say of that.

    Raises:
        EnvironmentUnfitError: another gate does not end.
    """
    with held(patience(tell, lambda: time.sleep(_LOOK_S))) as found:
        if found.unfit and not found.folders:
            tell(f"gates beside this one are not waited for, and disturb times: {'; '.join(found.unfit)}")
        yield


@contextlib.contextmanager
def held(waiting: Waiting) -> Iterator[Held]:
    """Hold the lock of every folder that can be used, in their order, so that nobody waits in a circle.

    What is started meanwhile takes none.
    """
    named = os.environ.get(VARIABLE)
    found = Held([], [])
    files: Set[Tuple[int, int]] = set()
    with contextlib.ExitStack() as stack:
        for folder in FOLDERS if named is None else filter(None, named.split(":")):
            try:
                descriptor = _locked(folder, files, waiting)
            except (OSError, _UnfitError) as error:
                found.unfit.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
                continue
            if descriptor is not None:
                stack.callback(os.close, descriptor)
                found.folders.append(folder)
        stack.callback(_set, named)
        _set("")
        yield found


def _set(folders: Optional[str]) -> None:
    if folders is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = folders


def patience(tell: Callable[[str], None], pause: Callable[[], None]) -> Waiting:
    """Tells once that it waits, and for whom; gives up when that took too long.

    It does not go on then: a time that was measured beside another gate is about both of them.

    Args:
        pause: called again and again.
    """
    until = time.monotonic() + WAIT_S
    told: List[bool] = []

    def wait(holder: str) -> None:
        by = f" ({holder})" if holder else ""
        if not told:
            told.append(True)
            tell(f"another gate is running on this device{by}; waiting for it to end")
        if time.monotonic() > until:
            raise EnvironmentUnfitError(
                "another gate on this device does not end",
                why=f"its lock was held for {WAIT_S / 60:.0f} minutes{f', last by {holder}' if holder else ''}",
                fix="look what runs there: any user of the device can hold that lock",
            )
        pause()

    return wait


def _locked(folder: str, ours: Set[Tuple[int, int]], waiting: Waiting) -> Optional[int]:
    """The descriptor of the locked file in `folder`; None where that is one of `ours` by another name."""
    place = os.stat(folder)  # noqa: PTH116 - /var/lock is a link to /run/lock: of the system's own folders that is fine
    if not stat.S_ISDIR(place.st_mode) or place.st_uid not in (0, os.geteuid()):
        raise _UnfitError("no folder of the system")
    if place.st_mode & 0o002 and not place.st_mode & stat.S_ISVTX:
        raise _UnfitError("anybody may remove what lies there")
    path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
    for _ in range(_ATTEMPTS):
        descriptor = _opened(path)
        try:
            identity = _identity(os.fstat(descriptor))
            if identity in ours:  # it would be waited for for ever
                os.close(descriptor)
                return None
            _take(descriptor, waiting)
            with contextlib.suppress(FileNotFoundError):
                if _identity(os.lstat(path)) == identity:
                    ours.add(identity)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise _UnfitError(f"{FILE_NAME} is another file every time")


def _identity(found: os.stat_result) -> Tuple[int, int]:
    return found.st_dev, found.st_ino


def _opened(path: str) -> int:
    """An empty file of its own, to lock; made where there is none.

    Raises:
        _UnfitError: what lies there is something else.
        OSError: it may not be read, or made.
    """
    # No wait for the other end of a pipe. What is there is opened without O_CREAT, which fs.protected_regular minds.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        before = os.umask(0)  # it has its mode from the first moment, for whoever comes in the next
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
        except FileExistsError:
            descriptor = os.open(path, flags)  # somebody was quicker
        finally:
            os.umask(before)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _UnfitError(f"{FILE_NAME} is a link") from error
        raise
    found = os.fstat(descriptor)
    # With a second name it may be a file that means something to somebody else, who would wait for us.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size:
        os.close(descriptor)
        raise _UnfitError(f"{FILE_NAME} is no empty file of its own")
    return descriptor


def _take(descriptor: int, waiting: Waiting) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waiting(_holder(os.fstat(descriptor)))


def _holder(found: os.stat_result) -> str:
    """Who holds the lock on a file, as far as this system tells: "process 812 of pi (python3)"; else empty."""
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as file:  # noqa: PTH123 - as the rest of this module
            rows = [line.split() for line in file]
    except OSError:
        return ""
    # "12: FLOCK  ADVISORY  WRITE 812 00:1a:5678 0 EOF"; who waits has a "->" before it.
    for process in (row[4] for row in rows if len(row) > 5 and (row[1], row[5]) == ("FLOCK", wanted)):
        with contextlib.suppress(OSError):
            user = os.stat(f"/proc/{int(process)}").st_uid  # noqa: PTH116
            with open(f"/proc/{int(process)}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                name = file.read().strip()
            return f"process {int(process)} of {_user_name(user)} ({name})"
    return ""


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
