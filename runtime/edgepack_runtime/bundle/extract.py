"""Writes an open bundle into a folder: regular files that its manifest lists, and nothing else (stdlib only)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, List, Optional, Set

from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.util.fs import FILE_MODE, fsync_folder, make_folder


def extract(
    archive: Archive,
    manifest: contract.Manifest,
    folder: Path,
    *,
    raw: bytes,
    signature: Optional[bytes],
    durable: bool,
) -> None:
    """Write the manifest, its signature and every file it lists into `folder`, which must not exist yet.

    Our own loop on purpose: only regular files that the manifest lists are made, with modes we choose (a bundle
    carries none), never more bytes than listed, never through a link that is already there. `durable` makes
    files and folders survive a power cut before this returns, and drops them from the page cache, so that whoever
    hashes them next reads the disk. `raw` and `signature` are the manifest's bytes as they were verified, and are
    not read again.

    Raises:
        BundleInvalidError: a member is missing or damaged, or longer than the manifest says.
        OSError: the folder cannot be written.
    """
    make_folder(folder, fresh=True)
    folders, files = {folder}, [folder / contract.MANIFEST_NAME]
    _write_new(files[0], iter([raw]))
    if signature is not None:
        files.append(folder / contract.SIGNATURE_NAME)
        _write_new(files[1], iter([signature]))
    for entry in manifest.files:
        member = archive.members.get(entry.path)
        if member is None or member.size != entry.size:
            raise archive.damaged(f"member {entry.path}", "it is missing, or has not the size the manifest lists")
        target = folder / entry.path
        if target.parent not in folders:
            folders.update(make_folder(target.parent))
        _write_new(target, archive.chunks(member))
        files.append(target)
    if durable:
        _make_durable(files, folders)


def _make_durable(files: List[Path], folders: Set[Path]) -> None:
    # In a second pass: the first fsync commits most of it in one go, where one after each file would take
    # minutes on an SD card.
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):  # not on every system; the hash then may come from memory
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    for folder in folders:
        fsync_folder(folder)


def _write_new(path: Path, chunks: Iterator[bytes]) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as out:
        os.fchmod(out.fileno(), FILE_MODE)  # whatever the umask: the application may run as another user
        for data in chunks:
            out.write(data)
