"""The container of a bundle: a shell program of 4 KiB, then a zip in one exact form, read strictly.

`sh FILE VERB` runs the stub, which starts Python on the same file, and Python runs a zip. Zip files may hold bytes that
no reader looks at: gaps, extra fields, differing headers, bits after a deflate stream. Bundles allow none of them, so
that any change is found. The bytes of every header follow from (path, method, CRC, sizes, offset); the writer
(packager) and the reader share these functions, and the reader compares. Members are sorted and without gaps, followed
by the directory and the end record. Its comment is `edgepack1 sha256=` and the sha256 of every byte before the
comment's two-byte length. There is no zip64: a bundle has to fit on a FAT disk (4 GiB).

Members are stored or deflated. In a bundle that carries an interpreter, shared libraries are compressed with LZMA;
a Python of the device may lack the module `_lzma`.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Dict, Iterator, List, Optional, Protocol, Tuple, Type

from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import FILE_MODE
from edgepack_runtime.util.hashing import CHUNK_BYTES, hash_prefix

STORED, DEFLATED, LZMA = 0, 8, 14
# The data of an LZMA member begins with this header (APPNOTE.TXT 5.8.8): version 9.4 of the LZMA SDK, 5 bytes of
# properties, lc=3 lp=0 pb=2 in one byte, dictionary of 8 MiB. A raw LZMA1 stream with an end marker follows.
LZMA_HEADER = b"\x09\x04\x05\x00\x5d\x00\x00\x80\x00"
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*\Z")
MAX_BUNDLE_BYTES = 2**32 - 1
STUB_BYTES = 4096  # of the shell program; offsets in the zip count from the beginning of the file
COMMENT_MAGIC = b"edgepack1 sha256="
COMMENT_BYTES = len(COMMENT_MAGIC) + 64

_LOCAL = struct.Struct("<4s5H3I2H")
_DIRECTORY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_MOST_ENTRY_BYTES = _DIRECTORY.size + 4 * contract.MAX_PATH_CHARACTERS  # UTF-8 takes up to 4 bytes a character
_TAIL_BYTES = _END.size + COMMENT_BYTES
_VERSION, _LZMA_VERSION = 20, 63  # zip 2.0 has deflate, zip 6.3 has LZMA
_MADE_BY = 3 << 8 | _VERSION  # 3: Unix, for the mode below
_DATE = 1 << 5 | 1  # 1980-01-01, the zip epoch: a bundle holds no wall-clock time
_MODE = (0o100000 | FILE_MODE) << 16
_UTF8 = 0x800
_END_MARKER = 0x2  # the LZMA stream has one


class _Decoder(Protocol):
    """Decompressor with bounded output, as `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class Member:
    """One file in the zip: its path, how it is stored, sizes in bytes, and where its local header starts."""

    path: str
    method: int  # STORED, DEFLATED or LZMA
    crc32: int
    compressed_size: int
    size: int
    offset: int

    @property
    def data_offset(self) -> int:
        return self.offset + _LOCAL.size + len(self.path.encode("utf-8"))

    @property
    def end(self) -> int:
        return self.data_offset + self.compressed_size


def local_header(member: Member) -> bytes:
    """The local header of the member."""
    name, version, flags = _name_version_flags(member)
    sizes = (member.crc32, member.compressed_size, member.size)
    return _LOCAL.pack(b"PK\3\4", version, flags, member.method, 0, _DATE, *sizes, len(name), 0) + name


def directory_entry(member: Member) -> bytes:
    """The member's entry in the directory at the end of the file."""
    name, version, flags = _name_version_flags(member)
    sizes = (member.crc32, member.compressed_size, member.size)
    head = (b"PK\1\2", _MADE_BY, version, flags, member.method, 0, _DATE)
    return _DIRECTORY.pack(*head, *sizes, len(name), 0, 0, 0, 0, _MODE, member.offset) + name


def is_library(path: str) -> bool:
    """Whether the name is that of a shared library, the only kind of member that LZMA is allowed for."""
    return _LIBRARY.search(path) is not None


def lzma_filters() -> List[Dict[str, int]]:
    """The properties in `LZMA_HEADER`, for the module `lzma`."""
    import lzma  # a Python of the device may lack it

    return [{"id": lzma.FILTER_LZMA1, "dict_size": 8 * 1024**2, "lc": 3, "lp": 0, "pb": 2}]


def end_record(count: int, directory_bytes: int, directory_offset: int) -> bytes:
    """The end record without its comment. The digest in the comment covers it except for the last two bytes."""
    return _END.pack(b"PK\5\6", 0, 0, count, count, directory_bytes, directory_offset, COMMENT_BYTES)


def comment(digest: str) -> bytes:
    """The zip comment for the sha256 (hex) of all bytes before the comment's length field."""
    return COMMENT_MAGIC + digest.encode("ascii")


class Archive:
    """An open bundle with a verified structure (headers, directory, end record). Use it in a `with` block.

    `members` maps path to member, in file order. `verify.verify_archive` checks the contents.

    Raises:
        UsageError: `path` is not a file.
        EnvironmentUnfitError: `path` cannot be opened.
        BundleInvalidError: a region of the file is not in the exact form; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        try:
            self.members, self._recorded_digest = self._read_structure()
        except OSError as error:
            self.close()
            raise self.damaged("the file", f"it cannot be read: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def damaged(self, region: str, why: str) -> BundleInvalidError:
        """The error for a damaged `region` of this file."""
        return BundleInvalidError(
            message("error.damaged", name=self.path.name, region=region),
            why=why,
            fix=message("error.copy_or_verify"),
        )

    def chunks(self, member: Member) -> Iterator[bytes]:
        """The member's content in chunks, never more than its recorded size.

        Raises:
            BundleInvalidError: the content does not match the recorded size and CRC.
            EnvironmentUnfitError: it is compressed with LZMA, and this Python lacks `_lzma`.
        """
        region = message("error.member", path=member.path)
        crc, size = 0, 0
        try:
            for data in self.stored(member) if member.method == STORED else self._decompressed(member):
                size += len(data)
                if size > member.size:
                    raise self.damaged(region, f"it has more than its {member.size} bytes")
                crc = zlib.crc32(data, crc)
                yield data
        except OSError as error:
            raise self.damaged(region, f"it cannot be read: {error.strerror or error}") from error
        if size != member.size or crc != member.crc32:
            raise self.damaged(region, message("error.checksum"))

    def read(self, path: str, limit: int) -> bytes:
        """The whole content of one small member.

        Raises:
            BundleInvalidError: the member is missing, damaged, or larger than `limit` bytes.
        """
        member = self.members.get(path)
        if member is None:
            raise self.damaged(message("error.member", path=path), "it is missing")
        if member.size > limit:
            raise self.damaged(
                message("error.member", path=path), f"it has {member.size} bytes; at most {limit} are read"
            )
        return b"".join(self.chunks(member))

    def stub(self) -> bytes:
        """The shell program at the beginning of the file.

        Raises:
            BundleInvalidError: it cannot be read.
        """
        try:
            self._file.seek(0)
            return self._file.read(STUB_BYTES)
        except OSError as error:
            raise self.damaged("the stub", f"it cannot be read: {error.strerror or error}") from error

    def check_digest(self) -> None:
        """Compare the sha256 in the end comment with the file.

        Raises:
            BundleInvalidError: they differ. If headers and contents are intact, the comment itself is damaged, or
                spare bits of compressed data.
        """
        if hash_prefix(self._file, self.size - COMMENT_BYTES - 2) != self._recorded_digest:
            raise self.damaged(
                "the end comment, or spare bits in compressed data",
                "every header and every unpacked file is intact, but the file's sha256 is not the recorded one",
            )

    def stored(self, member: Member) -> Iterator[bytes]:
        """The member's raw (perhaps compressed) data, not verified."""
        left = member.compressed_size
        self._file.seek(member.data_offset)
        while left:
            data = self._file.read(min(CHUNK_BYTES, left))
            if not data:
                return  # the file shrank; `chunks` compares the size
            left -= len(data)
            yield data

    def _decompressed(self, member: Member) -> Iterator[bytes]:
        region = message("error.member", path=member.path)
        raw = self.stored(member)
        if member.method == LZMA:
            first = next(raw, b"")
            if not first.startswith(LZMA_HEADER):
                raise self.damaged(region, "its LZMA header is not in the exact form")
            raw = itertools.chain([first[len(LZMA_HEADER) :]], raw)
        decoder, invalid = self._decoder(member.method)
        while not decoder.eof:
            hungry = decoder.needs_input
            source = next(raw, b"") if hungry else b""
            try:
                data = decoder.decompress(source, CHUNK_BYTES)
            except invalid as error:
                raise self.damaged(region, f"its compressed data is invalid ({error})") from error
            if hungry and not source and not data:
                raise self.damaged(region, "its compressed data ends too early")
            yield data
        if decoder.unused_data or next(raw, b""):
            raise self.damaged(region, "bytes follow the end of its compressed data")

    def _decoder(self, method: int) -> Tuple[_Decoder, Type[Exception]]:
        """A decompressor, and its exception for invalid data."""
        if method == DEFLATED:
            return _Inflater(), zlib.error
        try:
            import lzma
        except ImportError as error:
            raise EnvironmentUnfitError(
                f"this Python cannot unpack {self.path.name}",
                why=f"it lacks LZMA ({error}), and the file's libraries are compressed with that",
                fix=f"use the Python in the file: sh {self.path.name} VERB",
            ) from error
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=lzma_filters()), lzma.LZMAError

    def _read_structure(self) -> Tuple[Dict[str, Member], str]:
        self.size = self._file.seek(0, os.SEEK_END)
        count, directory_offset, digest = self._read_end()
        self._file.seek(directory_offset)
        directory = self._file.read(self.size - _TAIL_BYTES - directory_offset)
        members: Dict[str, Member] = {}
        position, end, last = 0, STUB_BYTES, ""
        for index in range(count):
            member, length = self._read_entry(directory, position, index, last)
            if member.offset != end:
                raise self.damaged(
                    message("error.member_header", path=member.path), "it does not follow the previous member"
                )
            self._check_local_header(member)
            members[member.path] = member
            position, end, last = position + length, member.end, member.path
        if position != len(directory) or end != directory_offset:
            raise self.damaged("the directory", "it does not fill the space between the members and the end record")
        return members, digest

    def _read_end(self) -> Tuple[int, int, str]:
        if self.size < STUB_BYTES + _TAIL_BYTES or self.size > MAX_BUNDLE_BYTES:
            raise self.damaged(message("error.the_file"), message("error.short_file", size=self.size))
        self._file.seek(self.size - _TAIL_BYTES)
        tail = self._file.read(_TAIL_BYTES)
        fields = _END.unpack(tail[: _END.size])
        if fields[0] != b"PK\5\6" and COMMENT_MAGIC not in tail:
            raise self.damaged(message("error.end_record"), message("error.cut_short"))
        count, directory_bytes, directory_offset = fields[4:7]
        if tail[: _END.size] != end_record(count, directory_bytes, directory_offset):
            raise self.damaged("the end record", "it is not in the exact form")
        if count > contract.MAX_FILES or directory_bytes > count * _MOST_ENTRY_BYTES:
            raise self.damaged("the end record", "the directory is too large")
        if directory_offset + directory_bytes != self.size - _TAIL_BYTES:
            raise self.damaged("the end record", "the directory is not at the recorded offset")
        digest = tail[_END.size + len(COMMENT_MAGIC) :]
        if tail[_END.size :] != COMMENT_MAGIC + digest or not digest.isalnum():
            raise self.damaged("the end comment", "it is not in the exact form")
        return count, directory_offset, digest.decode("ascii")

    def _read_entry(self, directory: bytes, position: int, index: int, last: str) -> Tuple[Member, int]:
        region = f"directory entry {index + 1} (after {last})" if last else "directory entry 1"
        fixed = directory[position : position + _DIRECTORY.size]
        if len(fixed) < _DIRECTORY.size:
            raise self.damaged(region, "the directory ends too early")
        fields = _DIRECTORY.unpack(fixed)
        length = _DIRECTORY.size + fields[10]
        try:
            path = directory[position + _DIRECTORY.size : position + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(region, "its name is not UTF-8") from error
        member = Member(path, fields[4], fields[7], fields[8], fields[9], fields[16])
        allowed = (STORED, DEFLATED, LZMA) if is_library(path) else (STORED, DEFLATED)
        if member.method not in allowed or not contract.safe_path(path) or path <= last:
            raise self.damaged(region, f"its name {path!r} or its compression method is not allowed")
        if directory[position : position + length] != directory_entry(member):
            raise self.damaged(f"directory entry of member {path}", "it is not in the exact form")
        return member, length

    def _check_local_header(self, member: Member) -> None:
        expected = local_header(member)
        self._file.seek(member.offset)
        if self._file.read(len(expected)) != expected:
            raise self.damaged(message("error.member_header", path=member.path), "it does not agree with the directory")


def _open(path: Path) -> BinaryIO:
    try:
        if not path.is_file():
            raise UsageError(message("error.no_bundle", path=str(path)))
        return path.open("rb")
    except OSError as error:
        raise EnvironmentUnfitError(
            f"{path} cannot be opened", why=error.strerror or str(error), fix="run as a user who may read it"
        ) from error


def _name_version_flags(member: Member) -> Tuple[bytes, int, int]:
    name = member.path.encode("utf-8")
    flags = 0 if name.isascii() else _UTF8
    if member.method == LZMA:
        return name, _LZMA_VERSION, flags | _END_MARKER
    return name, _VERSION, flags


class _Inflater:
    """Decompressor of a deflate stream with the interface of `lzma.LZMADecompressor`."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(-zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail or data, max_length)
