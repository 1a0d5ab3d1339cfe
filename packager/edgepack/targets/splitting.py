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
from edgepack.targets.verified import told
from edgepack_runtime import manifest as contract
from edgepack_runtime import split as form
from edgepack_runtime.archive import Archive
from edgepack_runtime.durable import FILE_MODE, fsync_folder, set_mode
from edgepack_runtime.hashing import CHUNK_BYTES
from edgepack_runtime.verify import verify_archive

SUFFIX: Final = ".split"  # of the folder
SMALLEST_BYTES: Final = 1 << 20
_README = "README.txt"
_STARTS: Final = ("__main__.py", contract.MANIFEST_NAME, contract.SIGNATURE_NAME, _README)


def split(bundle: Path, folder: Path, part_bytes: int) -> list[Path]:
    """Write `bundle` into `folder` as a bundle of its name that starts it, and parts of at most `part_bytes` each.

    The same bundle gives the same files. A folder that holds an earlier result is replaced, in one go.

    Returns:
        The files, what starts first.

    Raises:
        UsageError: parts would be smaller than `SMALLEST_BYTES`, or too many; it is in parts already; or `folder`
            holds something else.
        BundleInvalidError: it is damaged.
        StageFailedError: `folder` cannot be written.
    """
    with told(), Archive(bundle) as archive:
        if archive.is_in_parts:
            raise UsageError(f"{bundle.name} is in parts already", fix="split the whole bundle, as `build` made it")
        _require_size(archive.size, part_bytes)
        verify_archive(archive)
        _require_ours(folder, bundle)
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


def _require_ours(folder: Path, bundle: Path) -> None:
    """Whether `folder` may be replaced: it is not there, or holds what starts `bundle`, and parts, and nothing else."""
    if not folder.exists():
        return
    name = re.compile(rf"{re.escape(bundle.name)}(\.part[0-9]+)?")
    strange = [path.name for path in folder.iterdir() if not name.fullmatch(path.name)] if folder.is_dir() else [""]
    # What starts a bundle has its name: in its own folder, with nothing else in it, the whole one looks like a result.
    if not strange and (folder / bundle.name).exists() and (folder / bundle.name).samefile(bundle):
        strange = [f"{bundle.name} as a whole, which would be gone"]
    if strange:
        raise UsageError(
            f"{folder} holds something else than a bundle in parts",
            why=", ".join(sorted(strange)[:5]) or "it is a file",
            fix="choose another folder with --output",
        )


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
