"""Which GPUs a library holds code for, read from the containers that nvcc put into it ("fatbins").

A section is a row of containers, with zeros between them where one is to be aligned. A container is a header and a row
of entries; an entry is a header, which says for which architecture its code is, and the code. Code may be compressed;
headers never are, so that no code is read here, and a library of a gigabyte takes some thousand small reads.

    container   0 magic (4 bytes)   4 version (2)   6 bytes of this header (2)   8 bytes of its entries (8)
    entry       0 kind (2)   2 version (2)   4 bytes of this header (4)   8 bytes of its code, with padding (8)
                28 architecture (4), as 87 for sm_87   40 flags (8)

All numbers are little-endian. NVIDIA does not document the layout; it has been the same from CUDA 4 to CUDA 13.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

from edgepack.targets.elf import Extent

_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQ12xI8xQ")  # as far as its flags
_KINDS: Final[dict[int, Literal["sass", "ptx"]]] = {1: "ptx", 2: "sass", 16: "sass"}
_ZEROS: Final = 4096  # bytes read at once where there may be nothing


class Damaged(Exception):
    """A section is not laid out as nvcc does."""


@dataclass(frozen=True, order=True)
class Code:
    """Code for one architecture: machine code (`sass`), or the text that a driver compiles (`ptx`)."""

    kind: Literal["sass", "ptx"]
    sm: str  # "87"


def read(stream: BinaryIO, sections: Iterable[Extent]) -> frozenset[Code]:
    """What the given sections of a file hold code for.

    Raises:
        Damaged: naming where.
    """
    return frozenset(code for section in sections for code in _section(stream, section))


def _section(stream: BinaryIO, section: Extent) -> Iterator[Code]:
    place, end = section.offset, section.offset + section.size
    while True:
        place = _past_zeros(stream, place, end)
        if place == end:
            return
        magic, _, header, size = _CONTAINER.unpack(_bytes(stream, place, _CONTAINER.size, end))
        first = place + header
        if magic != _MAGIC or header < _CONTAINER.size or first + size > end:
            raise Damaged(f"at byte {place} there is no container of GPU code")
        place = first + size
        yield from _entries(stream, first, place)


def _entries(stream: BinaryIO, place: int, end: int) -> Iterator[Code]:
    while place < end:
        kind, _, header, size, sm, _ = _ENTRY.unpack(_bytes(stream, place, _ENTRY.size, end))
        if header < _ENTRY.size or place + header + size > end:
            raise Damaged(f"at byte {place} there is no entry of GPU code")
        if kind in _KINDS:  # others, as code that is still to be linked, run nowhere by themselves
            yield Code(_KINDS[kind], str(sm))
        place += header + size


def _past_zeros(stream: BinaryIO, place: int, end: int) -> int:
    """The first byte from `place` on that is not zero."""
    while place < end:
        read = _bytes(stream, place, min(_ZEROS, end - place), end)
        rest = read.lstrip(b"\0")
        if rest:
            return place + len(read) - len(rest)
        place += len(read)
    return end


def _bytes(stream: BinaryIO, place: int, count: int, end: int) -> bytes:
    if place + count > end:
        raise Damaged(f"GPU code is cut off at byte {place}")
    stream.seek(place)
    read = stream.read(count)
    if len(read) < count:
        raise Damaged(f"GPU code is cut off at byte {place}")
    return read
