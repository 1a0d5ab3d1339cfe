"""The tar.gz of a carried interpreter, in one exact form, as the zip around it.

The stub of the bundle unpacks it with the device's `tar`; an install unpacks it with `contents`. The bytes of each tar
header follow from path, size and mode, and the sizes are those of the manifest: nothing in the tar is believed.
"""

from __future__ import annotations

import zlib
from typing import Iterable, Iterator, Mapping, Tuple

from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import PYTHON_FOLDER, FileEntry, Interpreter, Manifest
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import EXECUTABLE_MODE, FILE_MODE
from edgepack_runtime.util.hashing import CHUNK_BYTES

_BLOCK_BYTES = 512
_NAME_BYTES = 100
_END = bytes(2 * _BLOCK_BYTES)
_GZIP = 16 + zlib.MAX_WBITS


def folder(machine: str) -> str:
    """The folder of the machine's interpreter in a release."""
    return f"{machine}/{PYTHON_FOLDER}/"


def is_executable(path: str) -> bool:
    """Whether the file `path` of a release is a program: those in `MACHINE/python/bin/`."""
    parts = path.split("/")
    return len(parts) == 4 and parts[1:3] == [PYTHON_FOLDER, "bin"]


def mode(path: str) -> int:
    """The mode of the file `path` of a release."""
    return EXECUTABLE_MODE if is_executable(path) else FILE_MODE


def tar_header(name: str, size: int, permissions: int) -> bytes:
    """The header of a regular file in a tar (POSIX ustar), of root at the beginning of 1970.

    Raises:
        ValueError: a ustar header cannot hold `name`.
    """
    if len(name) > _NAME_BYTES or not name.isascii():
        raise ValueError(f"{name} is not a name of at most {_NAME_BYTES} ASCII characters")
    encoded = name.encode("ascii")
    fields = b"".join(
        (
            encoded.ljust(_NAME_BYTES, b"\0"),
            b"%07o\0%07o\0%07o\0" % (permissions, 0, 0),
            b"%011o\0%011o\0" % (size, 0),
            b" " * 8,  # the sum counts its own place as blanks
            b"0",
            bytes(100),
            b"ustar\x0000",
            bytes(32 + 32),
            b"%07o\0%07o\0" % (0, 0),
            bytes(155 + 12),
        )
    )
    return fields.replace(b" " * 8, b"%06o\0 " % sum(fields), 1)


def padding(size: int) -> bytes:
    """The bytes after a file of `size` bytes, up to the next block of the tar."""
    return bytes(-size % _BLOCK_BYTES)


def tar(files: Iterable[Tuple[FileEntry, Iterable[bytes]]], prefix: str) -> Iterator[bytes]:
    """The tar of `files`, whose names lose `prefix`, in chunks."""
    for entry, chunks in files:
        yield tar_header(entry.path[len(prefix) :], entry.size, mode(entry.path))
        yield from chunks
        yield padding(entry.size)
    yield _END


def contents(
    archive: Archive, interpreter: Interpreter, manifest: Manifest
) -> Iterator[Tuple[FileEntry, Iterator[bytes]]]:
    """Each listed file of the interpreter with its content, in the order of the manifest.

    A content must be read to its end before the next file.

    Raises:
        BundleInvalidError: the tar differs in any byte from that of the listed files, or cannot hold their names.
    """
    prefix = folder(interpreter.machine)
    stream = _Inflated(archive, interpreter)
    for entry in manifest.files:
        if entry.path.startswith(prefix):
            try:
                header = tar_header(entry.path[len(prefix) :], entry.size, mode(entry.path))
            except ValueError as error:
                raise archive.damaged(message("error.member", path=interpreter.member), str(error)) from error
            stream.expect(header, entry.path)
            yield entry, stream.take(entry.size, entry.path)
            stream.expect(padding(entry.size), entry.path)
    stream.expect(_END, "its end")
    stream.finish()


class _Inflated:
    """The unpacked bytes of the tar.gz, in the pieces that are asked for."""

    def __init__(self, archive: Archive, interpreter: Interpreter) -> None:
        self._archive = archive
        self._name = interpreter.member
        self._packed = archive.chunks(archive.members[self._name])
        self._inflater = zlib.decompressobj(_GZIP)

    def expect(self, wanted: bytes, where: str) -> None:
        if b"".join(self.take(len(wanted), where)) != wanted:
            raise self._damaged(f"{where} is not in the exact form")

    def take(self, size: int, where: str) -> Iterator[bytes]:
        while size:
            data = self._read(min(size, CHUNK_BYTES))
            if not data:
                raise self._damaged(f"it ends in {where}")
            size -= len(data)
            yield data

    def finish(self) -> None:
        """Require that nothing follows."""
        if self._read(1) or not self._inflater.eof or self._inflater.unused_data or any(self._packed):
            raise self._damaged("bytes follow its end")

    def _read(self, most: int) -> bytes:
        try:
            while not self._inflater.eof:
                source = self._inflater.unconsumed_tail or next(self._packed, b"")
                data = self._inflater.decompress(source, most)
                if data or not source:
                    return data
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        return b""

    def _damaged(self, why: str) -> Exception:
        return self._archive.damaged(message("error.member", path=self._name), why)


def listed(manifest: Manifest) -> Mapping[str, Interpreter]:
    """The carried interpreters by their name in the bundle file."""
    return {interpreter.member: interpreter for interpreter in manifest.interpreters}
