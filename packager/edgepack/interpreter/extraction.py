"""Extraction of tar archives from outside, with nothing written and no link leading outside of a folder.

tarfile's own filters are not used: Debian 12's Python has none, and those of older patch releases follow long links
outside (CVE-2025-4517).
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract files, folders and links of `archive` into `folder`, which may hold those of another one.

    The root of an absolute link is `folder`. Modes are those of programs and of other files; owners are not kept.

    Raises:
        ValueError: a member would lie outside of `folder`, leads outside, or is of another kind.
        OSError, tarfile.TarError: the archive is damaged, or a file cannot be written.
    """
    for member in archive:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{member.name} would lie outside of the folder")
        if member.isdir():
            _make_folder(folder, name.parts)
        elif name.parts:
            path = _make_folder(folder, name.parts[:-1]) / name.name
            path.unlink(missing_ok=True)
            if member.issym():
                path.symlink_to(_target(member, len(name.parts) - 1))
            else:
                _write(archive, member, path)


def _make_folder(folder: Path, parts: Sequence[str]) -> Path:
    """Make each folder of a path, none of which may be a link."""
    folder.mkdir(exist_ok=True)
    for part in parts:
        folder /= part
        if folder.is_symlink():
            raise ValueError(f"{folder.name} is a link, and a member would be written through it")
        folder.mkdir(exist_ok=True)
    return folder


def _target(member: tarfile.TarInfo, depth: int) -> str:
    """The target of a link that lies in a folder of `depth` below the root, as a relative path.

    It goes up first, and no further than the root, then down. Folders that it goes up are no links, and links on the
    way down are of this form too, so none leads outside.
    """
    target = PurePosixPath(member.linkname)
    parts = list(target.parts[1:] if target.is_absolute() else target.parts)
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if ".." in parts[up:] or up > (0 if target.is_absolute() else depth):
        raise ValueError(f"{member.name} is a link that leads outside of the folder")
    to_root = [".."] * depth if target.is_absolute() else []
    return "/".join([*to_root, *parts]) or "."


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member) if member.isreg() or member.islnk() else None
    if source is None:
        raise ValueError(f"{member.name} is not a file, a folder or a link")
    with source, path.open("xb") as out:
        shutil.copyfileobj(source, out)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
