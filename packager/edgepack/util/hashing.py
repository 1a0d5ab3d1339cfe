"""sha256 of files and folders."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from edgepack_runtime.util.fs import open_regular, walk, write_atomic

_BLOCK_BYTES = 1 << 20


def sha256_file(file: Path) -> str:
    """Hex digest of a file's bytes.

    Raises:
        OSError: it cannot be read, or is a pipe or a device, which may have no end.
    """
    digest = hashlib.sha256()
    with open_regular(file) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sha256_folder(folder: Path) -> str:
    """Hex digest over the relative paths and contents of all files below `folder`."""
    listing = {file.relative_to(folder).as_posix(): sha256_file(file) for file in files_below(folder)}
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
