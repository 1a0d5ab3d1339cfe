"""A folder for downloads in the cache of packages, of which nothing is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgepack.errors import EnvironmentUnfitError
from edgepack_runtime.util.fs import CACHE_VARIABLE

_PATIENCE_S: Final = 5.0  # who removes what was left holds the lock for a moment
_POLL_S: Final = 0.02
_PREFIX: Final = ".fetching-"


@contextlib.contextmanager
def download_folder(store: Path) -> Iterator[Path]:
    """A new folder in the wheel cache `store`, which is made where it is not there; at the end of the block it goes.

    What a killed process left of it goes at the beginning, unless somebody else is fetching into the same cache.

    Raises:
        EnvironmentUnfitError: what the block, or this, wanted to write could not be written.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
        with _in_use(store), tempfile.TemporaryDirectory(prefix=_PREFIX, dir=store) as temporary:
            yield Path(temporary)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the wheel cache {store} cannot be written",
            why=f"{error.strerror}: {error.filename}",
            fix=f"choose another folder with --wheel-cache, or set {CACHE_VARIABLE}",
        ) from error


def _share(descriptor: int, store: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise EnvironmentUnfitError(
                    f"the wheel cache {store} is locked by another process",
                    fix=f"end that process (`fuser {store}`), or choose another folder with --wheel-cache",
                ) from None
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks
            return


@contextlib.contextmanager
def _in_use(store: Path) -> Iterator[None]:
    """Hold a lock on `store` that all who fetch share; who has it alone for a moment removes what was left."""
    descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Not every file system of a network has locks: there, nothing is removed.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in store.glob(f"{_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        _share(descriptor, store)
        yield
    finally:
        os.close(descriptor)
