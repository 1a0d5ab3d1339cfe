"""Writer of bundle files, in the restricted zip form that `edgepack_runtime.bundle.archive` reads."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from edgepack.errors import StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle import archive as form
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.util.fs import EXECUTABLE_MODE, replacing, write_atomic
from edgepack_runtime.util.hashing import CHUNK_BYTES, hash_prefix

BUNDLE_SUFFIX: Final = ".edgepack"

# Measured on numpy, onnxruntime and tokenizers (132 MB): level 6 gives 43.4 MB in 4.5 s, level 9 43.1 MB in 12 s.
# Of onnxruntime's library alone (29.4 MB), deflate makes 11.2 MB in 1 s, LZMA 8.25 MB in 14 s.
_LEVEL = 6
_INTERPRETER = ".tar.gz"


def write_bundle(
    members: Mapping[str, Path | bytes],
    out: Path,
    stub: bytes,
    *,
    lzma_cache: Path | None = None,
    progress: Progress = SILENT,
) -> None:
    """Write `stub`, then `members` (POSIX path in the bundle -> file or content), to the bundle file `out`, atomically.

    The same members give the same bytes, independent of the order of the mapping, the clock, and modes and times of the
    files; only another zlib or liblzma may compress differently. A member is compressed if that makes it smaller,
    except `__main__.py` and interpreters. Anybody may start the file.

    Args:
        lzma_cache: compress shared libraries with LZMA, and keep the result in this folder, since that takes half a
            second per MiB; every Python that opens the file then needs `_lzma`.
        progress: shows a bar for LZMA.

    Raises:
        StageFailedError: a path is not allowed in a release, a file cannot be read, the result exceeds the 4 GiB of a
            FAT stick, or `out` cannot be written.
    """
    for path in members:
        if not contract.safe_path(path):
            raise StageFailedError(f"the bundle cannot hold a file named {path!r}")
    if len(members) > contract.MAX_FILES:
        raise StageFailedError(f"the bundle has {len(members)} files; at most {contract.MAX_FILES} can be read")

    libraries = {path for path in members if lzma_cache is not None and form.is_library(path)}

    def write(file: BinaryIO) -> list[form.Member]:
        written = []
        total = sum(_mib(members[path]) for path in libraries)
        with (progress if libraries else SILENT).task("compressing libraries, MiB", total) as task:
            for path in sorted(members):
                if lzma_cache is not None and path in libraries:
                    packed = _by_lzma(members[path], lzma_cache, task.advance)
                    written.append(_write_member(file, path, members[path], packed))
                else:
                    written.append(_write_member(file, path, members[path]))
        return written

    _replace(out, stub, write)


def listed(path: str, content: Path | bytes) -> contract.FileEntry:
    """How the manifest lists a member."""
    if isinstance(content, bytes):
        return contract.FileEntry(path, len(content), hashlib.sha256(content).hexdigest())
    return contract.FileEntry(path, content.stat().st_size, sha256_file(content))


def first_offsets(sizes: Mapping[str, int]) -> dict[str, int]:
    """Where the data of the first members begins in the file, from their sizes; all are stored."""
    offset = form.STUB_BYTES
    offsets = {}
    for path in sorted(sizes):
        member = form.Member(path, form.STORED, 0, sizes[path], sizes[path], offset)
        offsets[path], offset = member.data_offset, member.end
    return offsets


def write_signed(archive: form.Archive, signature: bytes, out: Path) -> None:
    """Write the open bundle `archive` with `signature` instead of an existing one; atomically, as `write_bundle`.

    Its other members are copied in their stored form, so the result equals that of `write_bundle`, unless another zlib
    or liblzma wrote the bundle. `out` may be the bundle itself.

    Raises:
        StageFailedError: as `write_bundle`.
        edgepack_runtime.errors.BundleInvalidError: `archive` cannot be read.
    """

    def write(file: BinaryIO) -> list[form.Member]:
        written = []
        for path in sorted({*archive.members, contract.SIGNATURE_NAME}):
            if path == contract.SIGNATURE_NAME:
                written.append(_write_member(file, path, signature))
            else:
                written.append(_copy_member(file, archive, archive.members[path]))
        return written

    _replace(out, archive.stub(), write)


def _replace(out: Path, stub: bytes, write: Callable[[BinaryIO], list[form.Member]]) -> None:
    """Replace `out` by `stub`, the output of `write`, and the directory of the returned members."""
    assert len(stub) == form.STUB_BYTES
    try:
        with replacing(out, EXECUTABLE_MODE) as file:
            file.write(stub)
            _finish(write(file), file)
    except OSError as error:
        raise StageFailedError(
            f"the bundle {out.name} cannot be written", why=str(error), fix="check the folder and its disk"
        ) from error


def _finish(written: list[form.Member], file: BinaryIO) -> None:
    offset = file.tell()
    directory = b"".join(form.directory_entry(member) for member in written)
    end = form.end_record(len(written), len(directory), offset)
    if offset + len(directory) + len(end) + form.COMMENT_BYTES > form.MAX_BUNDLE_BYTES:
        raise _too_large("the bundle")
    file.write(directory + end)
    digest = hash_prefix(file, file.tell() - 2)  # without the comment's length, as `form.comment` says
    file.seek(0, os.SEEK_END)
    file.write(form.comment(digest))


def _write_member(file: BinaryIO, path: str, source: Path | bytes, packed: bytes | None = None) -> form.Member:
    """Write a member, compressed if it gets smaller: deflated, or as the LZMA stream `packed`."""
    method = form.DEFLATED if packed is None else form.LZMA
    offset = file.tell()
    file.write(form.local_header(form.Member(path, method, 0, 0, 0, offset)))  # only its length matters
    start = file.tell()
    crc = size = 0
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for data in chunks_of(source):
        crc, size = zlib.crc32(data, crc), size + len(data)
        if max(size, file.tell()) > form.MAX_BUNDLE_BYTES:
            raise _too_large(path)
        if packed is None:
            file.write(compressor.compress(data))
    file.write(compressor.flush() if packed is None else form.LZMA_HEADER + packed)
    # `__main__.py` runs before anything is checked. In a stored file, a damaged byte is one wrong character, not
    # a different rest of the program: nearly all are syntax errors, or are found by its own check.
    # The stub of the file cuts out an interpreter as it is.
    if file.tell() - start >= size or path == contract.MAIN_NAME or path.endswith(_INTERPRETER):
        method = form.STORED
        file.seek(start)
        file.truncate()
        for data in chunks_of(source):
            file.write(data)
    member = form.Member(path, method, crc, file.tell() - start, size, offset)
    file.seek(offset)
    file.write(form.local_header(member))
    file.seek(0, os.SEEK_END)
    return member


def _by_lzma(source: Path | bytes, cache: Path, advance: Callable[[], None]) -> bytes:
    """The LZMA stream of `source`, from the folder `cache` or kept there; call `advance` after each MiB."""
    sha256 = listed("", source).sha256
    kept = cache / f"{sha256}.lzma"
    with contextlib.suppress(OSError, lzma.LZMAError):  # absent, or damaged
        packed = kept.read_bytes()
        decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=form.lzma_filters())
        whole = decoder.decompress(packed)
        if hashlib.sha256(whole).hexdigest() == sha256 and decoder.eof and not decoder.unused_data:
            for _ in range(_mib(source)):
                advance()
            return packed
    compressor = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=form.lzma_filters())
    parts = []
    for data in chunks_of(source):
        parts.append(compressor.compress(data))
        advance()
    packed = b"".join([*parts, compressor.flush()])
    with contextlib.suppress(OSError):  # the next build takes the time again
        cache.mkdir(parents=True, exist_ok=True)
        write_atomic(kept, packed)
    return packed


def _copy_member(file: BinaryIO, archive: form.Archive, source: form.Member) -> form.Member:
    member = replace(source, offset=file.tell())
    file.write(form.local_header(member))
    for data in archive.stored(source):
        file.write(data)
    return member


def chunks_of(source: Path | bytes) -> Iterator[bytes]:
    """The content of a file, or the bytes themselves, in chunks."""
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield data


def _mib(source: Path | bytes) -> int:
    """The number of `chunks_of`."""
    return 1 if isinstance(source, bytes) else -(-source.stat().st_size // CHUNK_BYTES)


def _too_large(what: str) -> StageFailedError:
    return StageFailedError(
        f"{what} is too large", why="a bundle has to fit on a FAT stick: 4 GiB at most", fix="ship a smaller model"
    )
