"""sha256 of files and folders."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def sha256_file(file: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sha256_folder(folder: Path) -> str:
    """Hex digest over the relative paths and contents of all files below `folder`."""
    listing = {file.relative_to(folder).as_posix(): sha256_file(file) for file in files_below(folder)}
    return hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()


def files_below(folder: Path) -> list[Path]:
    """All regular files below `folder`, sorted."""
    return sorted(file for file in folder.rglob("*") if file.is_file())
