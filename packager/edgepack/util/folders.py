"""Folders that a command works in."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgepack.errors import EnvironmentUnfitError


def require_own(folder: Path) -> None:
    """Refuse a folder, or a link, that another user may have planted: a build would trust, run or fill what is there.

    Raises:
        EnvironmentUnfitError: it belongs to another user than this one and root, where every user may write.
    """
    folder = folder.absolute()
    try:
        found, place = folder.lstat(), folder.parent.stat()
    except OSError:  # there is none, or its first use tells why not
        return
    if place.st_mode & stat.S_IWOTH and found.st_uid not in (0, os.geteuid()):
        raise EnvironmentUnfitError(
            f"{folder} belongs to another user",
            why=f"every user may write {folder.parent}",
            fix="work in a folder of your own, or name other folders with --workspace and --dist",
        )
