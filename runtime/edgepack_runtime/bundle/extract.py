"""Extract a bundle: write only the regular files that its manifest lists for this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Iterator, List, Optional, Set, Tuple

from edgepack_runtime.bundle import interpreter
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import FILE_MODE, NEW_FILE, fsync_folder, make_folder


def extract(
    archive: Archive,
    manifest: contract.Manifest,
    folder: Path,
    *,
    raw: bytes,
    signature: Optional[bytes],
    durable: bool,
    left_out: Optional[str] = None,
) -> None:
    """Write the manifest, its signature and all listed files into `folder`, which must not exist yet.

    Modes are our own (a bundle has none), no file gets more bytes than listed, and no existing link is followed.

    Args:
        raw: bytes of the verified manifest; not read again.
        signature: bytes of its signature; not read again.
        durable: fsync files and folders and drop them from the page cache, so that a later hash reads the disk.
        left_out: the folder of an interpreter, as `interpreter.folder` names it, that is not written.

    Raises:
        BundleInvalidError: a member is missing, damaged, or longer than listed.
        OSError: the folder cannot be written.
    """
    make_folder(folder, fresh=True)
    folders, files = {folder}, [folder / contract.MANIFEST_NAME]
    _write_new(files[0], iter([raw]))
    if signature is not None:
        files.append(folder / contract.SIGNATURE_NAME)
        _write_new(files[1], iter([signature]))
    for entry, chunks in contents(archive, manifest, platform.machine(), left_out):
        target = folder / entry.path
        if target.parent not in folders:
            folders.update(make_folder(target.parent))
        _write_new(target, chunks, interpreter.mode(entry.path))
        files.append(target)
    if durable:
        _make_durable(files, folders)


def contents(
    archive: Archive, manifest: contract.Manifest, machine: str, left_out: Optional[str] = None
) -> Iterator[Tuple[contract.FileEntry, Iterator[bytes]]]:
    """The files of the release on `machine` with their content, each to be read to its end before the next.

    Args:
        left_out: as for `extract`.

    Raises:
        BundleInvalidError: a member is missing, damaged, or longer than listed.
    """
    inside = tuple(interpreter.folder(one.machine) for one in manifest.interpreters)
    for entry in manifest.files_for(machine):
        if entry.path.startswith(inside):
            continue
        member = archive.members.get(entry.path)
        if member is None or member.size != entry.size:
            raise archive.damaged(
                message("error.member", path=entry.path), "it is missing, or its size differs from the manifest"
            )
        yield entry, archive.chunks(member)
    for packed in manifest.interpreters:
        if packed.machine == machine and interpreter.folder(machine) != left_out:
            yield from interpreter.contents(archive, packed, manifest)


def _make_durable(files: List[Path], folders: Set[Path]) -> None:
    # After all writes: the first fsync commits most data at once. One after each file takes minutes on an SD card.
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):  # missing on some systems
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    for folder in folders:
        fsync_folder(folder)


def _write_new(path: Path, chunks: Iterator[bytes], mode: int = FILE_MODE) -> None:
    with os.fdopen(os.open(path, NEW_FILE, mode), "wb") as out:
        os.fchmod(out.fileno(), mode)  # regardless of the umask: applications may run as another user
        for data in chunks:
            out.write(data)
