"""Folders that a command works in."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgepack.errors import EnvironmentUnfitError
from edgepack_runtime.util.fs import remove_tree

_FIX: Final = "work in a folder of your own, or name other folders with --workspace and --dist"


def make_own(folder: Path) -> None:
    """Make a folder and those above it, and refuse one that another user may have planted.

    Raises:
        EnvironmentUnfitError: as `require_own`.
        OSError: it cannot be made.
    """
    require_own(folder)  # a link of another user, which the kernel may not follow (fs.protected_symlinks)
    folder.mkdir(parents=True, exist_ok=True)
    require_own(folder)


def require_own(folder: Path, fix: str = _FIX) -> None:
    """Refuse a folder that another user may have planted: a command would trust, run or fill what is there.

    Call it after the folder was created: before, somebody else could still be first.

    Raises:
        EnvironmentUnfitError: it, or a folder or link on the way to it, belongs to another user than this one and root,
            in a place where every user may write.
    """
    named, real = folder.absolute(), folder.resolve()
    for place in (named, *named.parents, real, *real.parents):
        try:
            found, parent = place.lstat(), place.parent.stat()
        except OSError:  # the first use of the folder finds out why
            return
        if parent.st_mode & stat.S_IWOTH and found.st_uid not in (0, os.geteuid()):
            raise EnvironmentUnfitError(
                f"{place} belongs to another user",
                why=f"every user may write {place.parent}",
                fix=fix,
            )


@contextlib.contextmanager
def scratch_folder(prefix: str, inside: Path | None = None) -> Iterator[Path]:
    """A new folder, by default a temporary one, which is removed with whatever a program of others left in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=inside))
    try:
        yield folder
    finally:
        remove_tree(folder)
