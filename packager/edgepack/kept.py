"""Receipts of devices, kept in a folder for each, numbered on: what `edgepack receipts` reads.

Several gates may keep theirs in one folder at a time. Each has a number of its own, and whoever reads meanwhile sees
whole receipts only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from edgepack.errors import EnvironmentUnfitError
from edgepack.fleet import RECEIPT
from edgepack_runtime.doctor import existing_parent
from edgepack_runtime.durable import FILE_MODE, fsync_folder, make_folder, set_mode

_TRIED_BYTES: Final = 256 * 1024  # more than a receipt has
_LONGEST_NAME: Final = 200
# What a file system says that has no second names for a file: FAT, some of a network.
_NO_LINKS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


def try_folder(folder: Path) -> None:
    """That a receipt could be kept in `folder`, as far as can be told while nothing is made there yet.

    Raises:
        EnvironmentUnfitError: it could not.
    """
    try:
        if folder.is_symlink() and not folder.exists():
            raise NotADirectoryError(errno.ENOTDIR, "it is a link to nowhere")
        with tempfile.TemporaryFile(dir=existing_parent(folder)) as file:
            file.write(bytes(_TRIED_BYTES))
    except OSError as error:
        raise _unkept(folder, error) from error


def keep(folder: Path, receipt: Mapping[str, Any]) -> Path:
    """Write a receipt as the next one of the device that `folder` is called after.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    text = json.dumps(receipt, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"
    try:
        make_folder(folder)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as out:
                set_mode(out.fileno(), FILE_MODE)
                out.write(text.encode("utf-8", "replace"))
                out.flush()
                os.fsync(out.fileno())
            path = _numbered(temporary, folder)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_folder(folder)
    except OSError as error:
        raise _unkept(folder, error) from error
    return path


def folder_name(target: str) -> str:
    """What a device's folder of receipts is called: its name, with `%XX` for what file systems take ill.

    No two names have the same; the end of one that is too long is a digest of it.
    """
    name = quote(target, safe="@+").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}%{hashlib.sha256(target.encode()).hexdigest()[:32]}"
    return name


def _numbered(temporary: Path, folder: Path) -> Path:
    """Give a file that is whole the next number that nobody else has."""
    number = 0
    while True:
        there = [int(found[1]) for path in folder.iterdir() if (found := RECEIPT.match(path.name))]
        number = max(number, *there, 0) + 1
        path = folder / f"{number:06d}-gate.json"
        with contextlib.suppress(FileExistsError):
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _renamed(temporary, path)
            return path


def _renamed(temporary: Path, path: Path) -> None:
    """Rename to a name that is free, where a file can have one name only: a second file says that it is being taken.

    Raises:
        FileExistsError: it is not free.
    """
    claim = path.with_name(f".{path.name}.claim")
    claim.touch(exist_ok=False)  # left by a process that was killed, it costs a number
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "somebody was quicker", str(path))
        temporary.rename(path)
    finally:
        claim.unlink()


def _unkept(folder: Path, error: OSError) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"the receipt cannot be kept in {folder}",
        why=error.strerror or str(error),
        fix="name another folder with --receipts",
    )
