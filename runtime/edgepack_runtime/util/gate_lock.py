"""One gate at a time on a device: gates that run at the same time would disturb each other's latencies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from typing import Iterator

from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.util.fs import FILE_MODE, os_errors, set_mode
from edgepack_runtime.util.progress import Log

FILE_NAME = "edgepack-gate.lock"
VARIABLE = "EDGEPACK_GATE_LOCK"  # folder of the lock file; empty: the parent process holds the lock
WAIT_S, _POLL_S = 1800.0, 0.2


@contextlib.contextmanager
def hold(log: Log) -> Iterator[None]:
    """Hold this device's gate lock (flock); processes that start inside the block do not take it again.

    Raises:
        EnvironmentUnfitError: the lock file cannot be opened, or another process held the lock for 30 minutes.
    """
    named = os.environ.get(VARIABLE)
    if named == "":
        yield
        return
    with os_errors("the gate lock cannot be opened"):
        folders = [named] if named else [os.environ.get("XDG_RUNTIME_DIR", ""), "/run/lock", tempfile.gettempdir()]
        folder = next((one for one in folders if os.access(one, os.W_OK | os.X_OK)), folders[-1])
        descriptor = _open(os.path.join(folder, FILE_NAME))  # noqa: PTH118
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        _take(descriptor, folder, log)
        stack.callback(os.environ.update, {VARIABLE: named} if named else {})
        stack.callback(os.environ.pop, VARIABLE)
        os.environ[VARIABLE] = ""
        yield


def _open(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)  # without O_CREAT, which fs.protected_regular forbids on another user's file
    except FileNotFoundError:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError:  # another process made it in the meantime
            return os.open(path, flags)
        set_mode(descriptor, FILE_MODE)
        return descriptor


def _take(descriptor: int, folder: str, log: Log) -> None:
    for attempt in range(1 + int(WAIT_S / _POLL_S)):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == 0:
                log(f"another gate is running on this device and holds the lock in {folder}; waiting for it to end")
            time.sleep(_POLL_S)
    raise EnvironmentUnfitError(
        f"another gate held the lock in {folder} for {WAIT_S / 60:.0f} minutes",
        fix=f"find the process that holds {FILE_NAME} (`fuser {folder}/{FILE_NAME}`), end it, then try again",
    )
