"""GPU architectures for which a library has code, read from nvcc's containers ("fatbins").

A section is a row of containers, with zeros between them where one is to be aligned. A container is a header and a row
of entries; an entry is a header, which says for which architecture its code is, and the code. Code may be compressed;
headers never are, so that no code is read here, and a library of a gigabyte takes some thousand small reads.

    container   0 magic (4 bytes)   4 version (2)   6 bytes of this header (2)   8 bytes of its entries (8)
    entry       0 kind (2)   2 version (2)   4 bytes of this header (4)   8 bytes of its code, with padding (8)
                20 bytes from here to what follows the 64 of a header, 0 for nothing (4)
                28 architecture (4), as 87 for sm_87   40 flags (8)
    several     an entry whose code is that of several, compressed as one. Behind its 64 bytes: 0 how many (4),
                4 bytes of this list (4), then for each the 64 bytes of its own header and what follows those: a
                number (4), the bytes of a list (4), that list, padding to 8 with at least 4 bytes

All numbers are little-endian. NVIDIA does not document the layout. This is what its `fatbinary` of CUDA 13.5 writes and
what libraries of onnxruntime, cuBLAS and cuDNN hold; containers and entries have been the same since CUDA 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple

from edgepack.bundle.binaries.elf import Binary, Extent
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile

Kind = Literal["sass", "ptx", "other"]
_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQ4xI4xI8xQ16x")
_LIST: Final = struct.Struct("<II")
_PTX, _SASS, _SASS_TOO, _SEVERAL = 1, 2, 16, 256
_KINDS: Final[dict[int, Kind]] = {_PTX: "ptx", _SASS: "sass", _SASS_TOO: "sass"}
_ONE_ALONE, _FAMILY = 0x100000, 0x200000  # flags: made for sm_90a, sm_100f
_MOST_LIST: Final = 1 << 16  # bytes
_ZEROS: Final = 4096  # bytes read at once where there may be nothing


class Damaged(Exception):
    """A section does not have nvcc's layout."""


@dataclass(frozen=True, order=True)
class Code:
    """Code for one architecture: machine code (`sass`), the text that a driver compiles (`ptx`), or `other`.

    `variant` is "a" where it uses what this one alone has, and "f" for what its family has: sm_90a, sm_100f.
    """

    kind: Kind
    sm: str  # "87"
    variant: str = ""


class _Header(NamedTuple):
    kind: int
    version: int
    header_bytes: int
    code_bytes: int
    more: int
    sm: int
    flags: int

    @property
    def code(self) -> Code:
        variant = "a" if self.flags & _ONE_ALONE else "f" if self.flags & _FAMILY else ""
        return Code(_KINDS.get(self.kind, "other"), str(self.sm), variant)


def read(stream: BinaryIO, sections: Iterable[Extent]) -> frozenset[Code]:
    """The GPU code in the given sections of a file.

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
        magic, _, header_bytes, size = _CONTAINER.unpack(_bytes(stream, place, _CONTAINER.size, end))
        first = place + header_bytes
        if magic != _MAGIC or header_bytes < _CONTAINER.size or first + size > end:
            raise Damaged(f"at byte {place} there is no container of GPU code")
        place = first + size
        yield from _entries(stream, first, place)


def _entries(stream: BinaryIO, place: int, end: int) -> Iterator[Code]:
    while place < end:
        entry = _Header._make(_ENTRY.unpack(_bytes(stream, place, _ENTRY.size, end)))
        code = place + entry.header_bytes
        if entry.header_bytes < _ENTRY.size or code + entry.code_bytes > end:
            raise Damaged(f"at byte {place} there is no entry of GPU code")
        if entry.kind == _SEVERAL:
            yield from _several(stream, place + _ENTRY.size, code)
        else:
            yield entry.code
        place = code + entry.code_bytes


def _several(stream: BinaryIO, place: int, end: int) -> Iterator[Code]:
    """What an entry of several is about: it lists their headers in its own, which ends at `end`."""
    count, size = _LIST.unpack(_bytes(stream, place, _LIST.size, end))
    if not _LIST.size <= size <= min(_MOST_LIST, end - place):
        raise Damaged(f"at byte {place} there is no list of GPU code")
    listed = _bytes(stream, place, size, end)
    at = _LIST.size
    for _ in range(count):
        if at + _ENTRY.size > size:
            raise Damaged(f"the list of GPU code at byte {place} is cut off")
        entry = _Header._make(_ENTRY.unpack_from(listed, at))
        yield entry.code
        at += _ENTRY.size
        if entry.more and at + _LIST.size <= size:
            at += _aligned(_LIST.size + _LIST.unpack_from(listed, at)[1] + 4)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


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


_NVIDIAS: Final = "nvidia-"  # what the names of packages of the CUDA release itself begin with
# Onnxruntime's GPU wheels for ARM64 on the package index are built for servers. JetPack 7 has the same CUDA, so that
# they install there too.
_SERVERS: Final = frozenset({"89", "90", "100", "103", "120", "121"})


def code_of(path: Path, name: str, binary: Binary) -> frozenset[Code]:
    """The GPU code of a library; empty if it has none.

    Raises:
        StageFailedError: a section is damaged.
    """
    if not binary.gpu_code:
        return frozenset()
    try:
        with path.open("rb") as stream:
            return read(stream, binary.gpu_code)
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
    return int(code.sm) <= int(sm) and (code.sm[:-1] == sm[:-1] or (code.kind == "ptx" and not code.variant))


def check(held: Mapping[str, frozenset[Code]], profile: Profile) -> Iterator[str]:
    """Check that each package with GPU code has code for every GPU of the target.

    A package counts as a whole: in some, each library is about other GPUs. NVIDIA's own serve every GPU of their
    release, and keep code in places that nobody else knows (of cuFFT 11 a section holds sm_52 alone): what they seem to
    lack is a note, not an error.

    Args:
        held: GPU code of each package, by its name and version.

    Yields:
        Warnings.

    Raises:
        StageFailedError: names the package, the GPUs it does not run on, and the GPUs it was built for.
    """
    gpus = profile.cuda.sm if profile.cuda is not None else ()
    for package, codes in held.items():
        lacking = [sm for sm in gpus if not _has(codes, sm, profile)]
        if codes and lacking and package.startswith(_NVIDIAS):
            yield f"{package} shows {describe_codes(codes)}; what it has for {_named('sm', lacking)} cannot be read"
        elif codes and lacking:
            raise StageFailedError(
                f"{package} has no code for {_named('sm', lacking)}, the GPU of target {profile.name}",
                why=_why(codes, profile),
                fix=_fix(profile),
            )


def describe_codes(codes: Iterable[Code]) -> str:
    """The architectures in words: `machine code for sm_80, sm_90, no PTX`."""
    ordered = sorted(codes, key=lambda code: (int(code.sm), code.variant))
    sass, ptx, other = (
        [code.sm + code.variant for code in ordered if code.kind == kind] for kind in ("sass", "ptx", "other")
    )
    words = [f"machine code for {_named('sm', sass)}" if sass else "no machine code"]
    words.append(f"PTX of {_named('compute', ptx)}" if ptx else "no PTX")
    return ", ".join([*words, "code that is still to be linked"] if other else words)


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
    return bool(profile.jetpack) and all(code.kind == "sass" and code.sm in _SERVERS for code in codes)


def _named(prefix: str, architectures: Iterable[str]) -> str:
    return ", ".join(f"{prefix}_{sm}" for sm in architectures)
