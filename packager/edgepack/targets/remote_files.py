"""Files that come to a device packed: unpacked, counted, hashed (sent there; standard library, Python >= 3.8)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO, Callable, Iterator

from edgepack.targets.remote_input import GoneError
from edgepack_runtime.archive import DEFLATED, STORED
from edgepack_runtime.durable import FILE_MODE, remove_tree, set_mode
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.hashing import CHUNK_BYTES
from edgepack_runtime.manifest import FileEntry

_PIECE_BYTES = 64 * 1024
Got = Callable[[int], None]
Read = Callable[[int], bytes]  # as of a file: so many bytes, fewer at the end only


def has_size(path: Path, size: int) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def copy(read: Read, out: BinaryIO, count: int, got: Got) -> None:
    while count:
        data = read(min(_PIECE_BYTES, count))
        out.write(data)
        if not data:
            raise GoneError("the other end closed")
        count -= len(data)
        got(len(data))


def unpack(packed: BinaryIO, method: int, entry: FileEntry, target: Path) -> None:
    """Write the content of `entry` to `target`; nothing is there where it is not what the manifest lists."""
    packed.seek(0)
    digest = hashlib.sha256()
    temporary = target.with_name(f"{target.name}.tmp")
    with contextlib.suppress(ValueError, zlib.error):  # the digest says so too
        write(temporary, _counted(_inflated(packed, method), entry.size, digest))
    if digest.hexdigest() == entry.sha256:
        temporary.replace(target)
    else:
        remove_tree(temporary)


def _counted(pieces: Iterator[bytes], size: int, digest: hashlib._Hash) -> Iterator[bytes]:
    for data in pieces:
        size -= len(data)
        if size < 0:
            raise ValueError("it holds more than the manifest lists")
        digest.update(data)
        yield data


def _inflated(file: BinaryIO, method: int) -> Iterator[bytes]:
    pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
    if method == STORED:
        yield from pieces
        return
    if method != DEFLATED:
        raise BundleInvalidError(f"a file was packed in a way that nobody knows ({method})")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in pieces:
        data = inflater.decompress(piece, CHUNK_BYTES)
        while data or inflater.unconsumed_tail:
            yield data
            data = inflater.decompress(inflater.unconsumed_tail, CHUNK_BYTES)


def write(path: Path, pieces: Iterator[bytes]) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as out:
        set_mode(out.fileno(), FILE_MODE)
        for data in pieces:
            out.write(data)
