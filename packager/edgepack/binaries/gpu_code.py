"""GPU architectures for which a library has code, read from nvcc's containers ("fatbins").

A section is a row of containers, with zeros between them for alignment. A container is a header and a row of entries.
An entry is a header, which names the architecture, and the code. Code may be compressed; headers never are. So no code
is read here, and a library of a gigabyte takes some thousand small reads.

Each line is: offset, size in bytes, field.

    container header     0  4  magic
                         4  2  version
                         6  2  size of this header
                         8  8  size of the entries
    entry header         0  2  kind: PTX, machine code, or a group
                         2  2  version
                         4  4  size of this header, 64 or more
                         8  8  size of the code, with padding
                        20  4  offset of extra data behind the first 64 bytes; 0 if there is none
                        28  4  architecture, as 87 for sm_87
                        40  8  flags
    group: an entry whose code is that of several entries, compressed as one. Behind the first 64 bytes of its header:
                         0  4  number of members
                         4  4  size of this list
                         8     the members, each the 64 bytes of an entry header and, if it has extra data:
                         0  4    a number
                         4  4    size of the data that follows
                         8       data, then at least 4 bytes of padding to a multiple of 8

All numbers are little-endian. NVIDIA does not document the layout. This is what its `fatbinary` of CUDA 13.5 writes and
what libraries of onnxruntime, cuBLAS and cuDNN hold; containers and entries have been the same since CUDA 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple

from edgepack.binaries.elf import Binary, Extent
from edgepack.errors import StageFailedError
from edgepack.messages import joined, message
from edgepack.targets.profiles import Profile

Kind = Literal["sass", "ptx", "other"]
_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQ4xI4xI8xQ16x")
_LIST: Final = struct.Struct("<II")
_GROUP: Final = 256  # a kind of entry
_KINDS: Final[dict[int, Kind]] = {1: "ptx", 2: "sass", 16: "sass"}  # 16 is machine code too
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000  # flags, as of sm_90a and sm_100f
_MAX_LIST_BYTES: Final = 1 << 16
_LEAST_PADDING: Final = 4  # bytes behind the extra data of a member
_CHUNK_BYTES: Final = 4096  # read at once where there may be zeros
_NVIDIA_PREFIX: Final = "nvidia-"  # of the packages of the CUDA release itself
# Onnxruntime's GPU wheels for ARM64 on the package index are built for servers. JetPack 7 has the same CUDA, so that
# they install there too.
_SERVER_SM: Final = frozenset({"89", "90", "100", "103", "120", "121"})


class Damaged(Exception):
    """A section does not have nvcc's layout."""


@dataclass(frozen=True, order=True)
class Code:
    """Code for one architecture: machine code (`sass`), the text that a driver compiles (`ptx`), or `other`.

    `variant` is "a" if it uses features of this architecture alone (sm_90a), "f" if of its family (sm_100f), else "".
    """

    kind: Kind
    sm: str  # "87"
    variant: str = ""


class _Header(NamedTuple):
    kind: int
    version: int
    header_bytes: int
    code_bytes: int
    extra_offset: int
    sm: int
    flags: int

    @property
    def code(self) -> Code:
        variant = "a" if self.flags & _ARCH_SPECIFIC else "f" if self.flags & _FAMILY_SPECIFIC else ""
        return Code(_KINDS.get(self.kind, "other"), str(self.sm), variant)


def read_sections(stream: BinaryIO, sections: Iterable[Extent]) -> frozenset[Code]:
    """The GPU code in sections of a file.

    Raises:
        Damaged: names the byte.
    """
    return frozenset(code for section in sections for code in _section(stream, section))


def _section(stream: BinaryIO, section: Extent) -> Iterator[Code]:
    place, end = section.offset, section.offset + section.size
    while True:
        place = _past_zeros(stream, place, end)
        if place == end:
            return
        magic, _, header_bytes, size = _CONTAINER.unpack(_bytes(stream, place, _CONTAINER.size, end))
        first = place + header_bytes
        if magic != _MAGIC or header_bytes < _CONTAINER.size or first + size > end:
            raise Damaged(f"at byte {place} there is no container of GPU code")
        place = first + size
        yield from _entries(stream, first, place)


def _entries(stream: BinaryIO, place: int, end: int) -> Iterator[Code]:
    while place < end:
        entry = _Header._make(_ENTRY.unpack(_bytes(stream, place, _ENTRY.size, end)))
        code_start = place + entry.header_bytes
        if entry.header_bytes < _ENTRY.size or code_start + entry.code_bytes > end:
            raise Damaged(f"at byte {place} there is no entry of GPU code")
        if entry.kind == _GROUP:
            yield from _members(stream, place + _ENTRY.size, code_start)
        else:
            yield entry.code
        place = code_start + entry.code_bytes


def _members(stream: BinaryIO, place: int, end: int) -> Iterator[Code]:
    """The members of a group. Their list starts at `place`, inside the header of the group, which ends at `end`."""
    count, size = _LIST.unpack(_bytes(stream, place, _LIST.size, end))
    if not _LIST.size <= size <= min(_MAX_LIST_BYTES, end - place):
        raise Damaged(f"at byte {place} there is no list of GPU code")
    listed = _bytes(stream, place, size, end)
    at = _LIST.size
    for _ in range(count):
        if at + _ENTRY.size > size:
            raise Damaged(f"the list of GPU code at byte {place} is cut off")
        entry = _Header._make(_ENTRY.unpack_from(listed, at))
        yield entry.code
        at += _ENTRY.size
        if entry.extra_offset and at + _LIST.size <= size:
            _, extra_bytes = _LIST.unpack_from(listed, at)
            at += _aligned(_LIST.size + extra_bytes + _LEAST_PADDING)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def _past_zeros(stream: BinaryIO, place: int, end: int) -> int:
    """The first byte from `place` on that is not zero."""
    while place < end:
        read = _bytes(stream, place, min(_CHUNK_BYTES, end - place), end)
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


def read_library(path: Path, name: str, binary: Binary) -> frozenset[Code]:
    """The GPU code of a library; empty if it has none. Errors call it `name`.

    Raises:
        StageFailedError: a section is damaged.
    """
    if not binary.gpu_code:
        return frozenset()
    try:
        with path.open("rb") as stream:
            return read_sections(stream, binary.gpu_code)
    except Damaged as error:
        raise StageFailedError(
            f"the GPU code in {name} cannot be read", why=str(error), fix="delete the wheel cache and build again"
        ) from error


def runs(code: Code, sm: str, *, jetson: bool) -> bool:
    """Whether a GPU of compute capability `sm` runs `code`.

    Machine code runs on GPUs with the same major version and the same or a higher minor version; on a Jetson only on
    the same compute capability. PTX runs on the same and all later ones. Code of variant "a" runs on the same one
    only, code of variant "f" within the same major version. Source: CUDA C++ Programming Guide, "Binary Compatibility".
    """
    if code.kind == "other":
        return False
    if code.variant == "a" or (jetson and code.kind == "sass"):
        return code.sm == sm
    if int(code.sm) > int(sm):
        return False
    if code.kind == "ptx" and not code.variant:
        return True
    return code.sm[:-1] == sm[:-1]  # the same major version: the last digit is the minor one


def check(packages: Mapping[str, frozenset[Code]], profile: Profile) -> Iterator[str]:
    """Check that each package with GPU code has code for every GPU of the target.

    A package counts as a whole, because its libraries may be for different GPUs. NVIDIA's own packages run on every GPU
    of their release, but hold code in undocumented places too (the section in cuFFT 11 has sm_52 alone). So what they
    seem to lack is a warning, not an error.

    Args:
        packages: GPU code of each package, by its name and version.

    Yields:
        Warnings.

    Raises:
        StageFailedError: names the package, the GPUs it does not run on, and the GPUs it was built for.
    """
    gpus = profile.cuda.sm if profile.cuda is not None else ()
    for package, codes in packages.items():
        lacking = [sm for sm in gpus if not _has(codes, sm, profile)]
        if codes and lacking and package.startswith(_NVIDIA_PREFIX):
            names = _architectures("sm", lacking)
            yield message("note.gpu_code", name=package, codes=describe_codes(codes), devices=names)
        elif codes and lacking:
            raise StageFailedError(
                f"{package} has no code for {_architectures('sm', lacking)}, the GPU of target {profile.name}",
                why=_why(codes, profile),
                fix=_fix(profile),
            )


def describe_codes(codes: Iterable[Code]) -> str:
    """The architectures in words: `machine code for sm_80, sm_90, no PTX`."""
    ordered = sorted(codes, key=lambda code: (int(code.sm), code.variant))
    sass, ptx, other = (
        [code.sm + code.variant for code in ordered if code.kind == kind] for kind in ("sass", "ptx", "other")
    )
    return joined(
        message("content.sass", for_gpus=_architectures("sm", sass)) if sass else message("content.no_sass"),
        message("content.ptx", of=_architectures("compute", ptx)) if ptx else message("content.no_ptx"),
        message("content.unlinked") if other else "",
        by="list.comma",
    )


def _has(codes: Iterable[Code], sm: str, profile: Profile) -> bool:
    return any(runs(code, sm, jetson=bool(profile.jetpack)) for code in codes)


def _why(codes: Iterable[Code], profile: Profile) -> str:
    why = f"it holds {describe_codes(codes)}: it would install, and fail when the first model is run"
    if _is_for_servers(codes, profile):
        why += (
            f"; it is the wheel for ARM64 servers, and installs on JetPack {profile.jetpack} because Python, glibc and "
            "CUDA are the same there"
        )
    return why


def _fix(profile: Profile) -> str:
    if profile.jetpack:
        built = f"was built for JetPack {profile.jetpack}"
        return f"give a wheel by path that {built} (docs/reference/targets.md), or build for a CPU target"
    return "lock a release that was built for these GPUs, or take them out of the target's `cuda.sm`"


def _is_for_servers(codes: Iterable[Code], profile: Profile) -> bool:
    return bool(profile.jetpack) and all(code.kind == "sass" and code.sm in _SERVER_SM for code in codes)


def _architectures(prefix: str, architectures: Iterable[str]) -> str:
    return ", ".join(f"{prefix}_{sm}" for sm in architectures)
