"""Cuts a bundle into files of a given size, with a small bundle that starts them: `edgepack_runtime.split` reads it."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from edgepack.errors import StageFailedError, UsageError
from edgepack.targets.archive import write_bundle
from edgepack_runtime import manifest as contract
from edgepack_runtime import split as form
from edgepack_runtime.archive import Archive
from edgepack_runtime.durable import FILE_MODE, fsync_folder, set_mode
from edgepack_runtime.hashing import CHUNK_BYTES
from edgepack_runtime.verify import verify_archive

SUFFIX: Final = ".split"  # of the folder
SMALLEST_BYTES: Final = 1 << 20
_README = "README.txt"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")  # a space in it is \040
_STARTS: Final = ("__main__.py", contract.MANIFEST_NAME, contract.SIGNATURE_NAME, _README)


def split(bundle: Path, folder: Path, part_bytes: int) -> list[Path]:
    """Write `bundle` into `folder` as a bundle of its name that starts it, and parts of at most `part_bytes` each.

    The same bundle gives the same files. A folder that holds an earlier result is replaced, in one go.

    Returns:
        The files, what starts first.

    Raises:
        UsageError: parts would be smaller than `SMALLEST_BYTES`, or too many; it is in parts already; or as
            `require_ours`.
        BundleInvalidError: it is damaged.
        StageFailedError: `folder` cannot be written.
    """
    with Archive(bundle) as archive:
        if archive.is_in_parts:
            raise UsageError(f"{bundle.name} is in parts already", fix="split the whole bundle, as `build` made it")
        _require_size(archive.size, part_bytes)
        verify_archive(archive)
        require_ours(folder, bundle.name, bundle, option="--output")
        try:
            return _replace(folder, archive, part_bytes)
        except OSError as error:
            raise StageFailedError(
                f"{folder} cannot be written", why=error.strerror or str(error), fix="check the folder and its disk"
            ) from error


def _require_size(size: int, part_bytes: int) -> None:
    least = max(SMALLEST_BYTES, -(-size // form.MAX_PARTS))
    if part_bytes < least:
        raise UsageError(
            f"a bundle of {size} bytes is not split into parts of {part_bytes}",
            why=f"a part has 1 MiB at least, and there are {form.MAX_PARTS} at most",
            fix=f"give a size of {-(-least // (1 << 20))}M or more",
        )


def require_ours(folder: Path, name: str, whole: Path | None = None, *, option: str) -> None:
    """Whether `folder` may be replaced: it is not there, or holds what starts the bundle `name`, and its parts, alone.

    Args:
        whole: the bundle itself, which may lie in `folder`.
        option: what names another folder on the command line.

    Raises:
        UsageError: it holds something else, or is no folder, a link, or a mount point, which nothing can replace.
    """
    other = f"choose another folder with {option}"
    if folder.is_symlink():
        raise UsageError(
            f"{folder} is a link", why="parts are written as a folder that would take its place", fix=other
        )
    if not folder.exists():
        return
    if _is_mount_point(folder):
        raise UsageError(
            f"{folder} is a mount point",
            why="parts are written as a folder that takes its place, and nothing takes the place of a mount point",
            fix=f"give a folder in it: --output {folder / (name + SUFFIX)}" if option == "--output" else other,
        )
    strange = [one.name for one in folder.iterdir() if not _is_part(one, name)] if folder.is_dir() else [""]
    # What starts a bundle has its name: in its own folder, with nothing else in it, the whole one looks like a result.
    if not strange and whole is not None and (folder / name).exists() and (folder / name).samefile(whole):
        strange = [f"{name} as a whole, which would be gone"]
    if strange:
        why = ", ".join(sorted(strange)[:5]) or "it is a file"
        raise UsageError(f"{folder} holds something else than a bundle in parts", why=why, fix=other)


def remove(folder: Path, name: str) -> None:
    """Take away what starts the bundle `name`, and its parts; `folder` too, unless it holds something else.

    Raises:
        OSError: one cannot be removed.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for part in [one for one in folder.iterdir() if _is_part(one, name)]:
        part.unlink()
    if not any(folder.iterdir()) and not _is_mount_point(folder):
        folder.rmdir()


def _is_part(path: Path, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}(\.part[0-9]+)?", path.name) is not None and not path.is_dir()


def _is_mount_point(folder: Path) -> bool:
    """Also of a folder that is mounted again on its own file system, where `ismount` sees nothing."""
    if not _MOUNTS.is_file():
        return folder.is_mount()
    points = (line.split()[4] for line in _MOUNTS.read_bytes().splitlines())
    return os.fsencode(folder.resolve()) in {_OCTAL.sub(lambda one: bytes([int(one[1], 8)]), at) for at in points}


def _replace(folder: Path, archive: Archive, part_bytes: int) -> list[Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        staged = Path(temporary, "parts")
        staged.mkdir(mode=0o755)
        names = _write(staged, archive, part_bytes)
        fsync_folder(staged)
        if folder.exists():
            folder.rename(Path(temporary, "before"))
        staged.rename(folder)
        fsync_folder(folder.parent)
    return [folder / name for name in names]


def _write(staged: Path, archive: Archive, part_bytes: int) -> list[str]:
    name = archive.path.name
    count = -(-archive.size // part_bytes)
    digits = len(str(count))
    with archive.path.open("rb") as source:
        parts = tuple(
            _write_part(source, staged / f"{name}.part{number:0{digits}}", part_bytes) for number in range(1, count + 1)
        )
    starts = {
        path: archive.read(path, member.size)
        for path, member in archive.members.items()
        if path in _STARTS or path.startswith("edgepack_runtime/")
    }
    write_bundle({**starts, form.LIST_NAME: form.dump(parts)}, staged / name)
    return [name, *(part.name for part in parts)]


def _write_part(source: BinaryIO, path: Path, part_bytes: int) -> form.Part:
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as out:
        set_mode(out.fileno(), FILE_MODE)
        for data in _at_most(source, part_bytes):
            digest.update(data)
            size += len(data)
            out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return form.Part(path.name, size, digest.hexdigest())


def _at_most(source: BinaryIO, count: int) -> Iterator[bytes]:
    while count and (data := source.read(min(CHUNK_BYTES, count))):
        count -= len(data)
        yield data
