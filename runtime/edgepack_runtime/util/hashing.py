"""Digests of files that are read in chunks."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

CHUNK_BYTES = 1024 * 1024


def hash_prefix(file: BinaryIO, count: int) -> str:
    """sha256 in hex of the first `count` bytes of `file`."""
    digest = hashlib.sha256()
    file.seek(0)
    while count:
        data = file.read(min(CHUNK_BYTES, count))
        if not data:
            break  # a shorter file gives another digest
        digest.update(data)
        count -= len(data)
    return digest.hexdigest()
