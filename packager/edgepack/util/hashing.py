"""sha256 of files and folders."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from edgepack_runtime.util.fs import open_regular, walk, write_atomic

_BLOCK_BYTES = 1 << 20
MOST_BYTES: Final = 64 * 2**30  # of a file: a sparse one of terabytes takes no space, and hours


def sha256_file(file: Path) -> str:
    """Hex digest of a file's bytes.

    Raises:
        OSError: it cannot be read, is larger than `MOST_BYTES`, or is a pipe or a device, which may have no end.
    """
    digest = hashlib.sha256()
    with open_regular(file) as stream:
        if os.fstat(stream.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 30} GiB", str(file))
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sha256_files(files: Iterable[Path]) -> str:
    """Hex digest over the names and contents of files of one folder. Raises as `sha256_file`."""
    listing = {file.name: sha256_file(file) for file in files}
    return hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()


def update_sums(file: Path) -> list[Path]:
    """Write the present digest of `file` into the `.sha256` files beside it that list it; return those that changed."""
    changed, name = [], b"  " + os.fsencode(file.name)
    for sums in (path for path in sorted(file.parent.glob("*.sha256")) if path.is_file()):
        lines = sums.read_bytes().split(b"\n")
        fresh = [sha256_file(file).encode() + name if line[64:] == name else line for line in lines]
        if fresh != lines:
            write_atomic(sums, b"\n".join(fresh))
            changed.append(sums)
    return changed


def files_below(folder: Path) -> list[Path]:
    """All regular files below `folder`, sorted."""
    return sorted(folder / path for path, kind in walk(folder) if kind == "file" or (folder / path).is_file())
