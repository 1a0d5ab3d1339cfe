"""Fixtures for the tests of `edgepack.targets`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgepack.targets import wheels
from edgepack.targets.profiles import Profile

EM_X86_64 = 62
_PIP_DOWNLOAD = wheels.pip_download


@pytest.fixture
def pip_download() -> wheels.Download:
    """The real thing, for tests that put something else in the place of the process it starts."""
    return _PIP_DOWNLOAD


@pytest.fixture(autouse=True)
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test that would reach for the network fails instead."""

    def refuse(requirements: Path, folder: Path, profile: Profile) -> None:
        raise AssertionError("a unit test ran pip")

    monkeypatch.setattr(wheels, "pip_download", refuse)


@pytest.fixture
def profile() -> Profile:
    """A target that no machine's own Python decides."""
    return Profile(
        name="test-target",
        summary="for tests",
        system="Linux",
        machine="x86_64",
        libc="glibc",
        python="3.11",
        pythons=("3.10", "3.11", "3.12"),
        elf_machine="EM_X86_64",
        elf_bits=64,
        lock="linux-x86_64-cpu.txt",
    )


@pytest.fixture
def make_elf() -> Callable[..., bytes]:
    """A factory of the smallest ELF files that state needs: `make_elf(symbols, libraries, machine=)`."""
    return _elf


def _elf(
    symbols: Sequence[str] = (),
    libraries: Sequence[str] = (),
    *,
    machine: int = EM_X86_64,
    sections: bool = True,
    provider: str = "libfake.so",
    runpath: str | None = None,
    stack: int | None = None,
    flags: int = 0,
    fatbin: bytes = b"",
) -> bytes:
    """64-bit little-endian ELF with .dynstr, .gnu.version_r, .dynamic and .nv_fatbin (System V gABI, chapters 4 and 5).

    `provider` has the symbols; `stack` are the flags of PT_GNU_STACK, none without; `flags` are those of DT_FLAGS.
    """
    strings = b"\0"
    offsets = {}
    for text in (provider, runpath or "", *symbols, *libraries):
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    needs = b""
    if symbols:
        needs = struct.pack("<HHIII", 1, len(symbols), offsets[provider], 16, 0)
        for index, symbol in enumerate(symbols):
            last = index == len(symbols) - 1
            needs += struct.pack("<IHHII", 0, 0, 2 + index, offsets[symbol], 0 if last else 16)
    entries = [(1, offsets[library]) for library in libraries]  # DT_NEEDED
    entries += [(29, offsets[runpath])] if runpath is not None else []
    entries += [(30, flags)] if flags else []
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in (*entries, (0, 0)))
    segments = b"" if stack is None else struct.pack("<IIQQQQQQ", 0x6474E551, stack, 0, 0, 0, 0, 0, 16)
    start = 64 + len(segments)
    names = b"\0.dynstr\0.gnu.version_r\0.dynamic\0.shstrtab\0.nv_fatbin\0"
    body = [(1, 3, strings, 0, 0, 0), (9, 0x6FFFFFFE, needs, 1, 1 if symbols else 0, 0)]
    body += [(24, 6, dynamic, 1, 0, 16)]
    body += [(43, 1, fatbin, 0, 0, 0)] if fatbin else []
    body += [(33, 3, names, 0, 0, 0)]
    data, table = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, kind, content, link, info, entry in body:
        if kind == 0x6FFFFFFE and not content:
            kind = 1
        table += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, start + len(data), len(content), link, info, 1, entry)
        data += content
    count = len(body) + 1 if sections else 0
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    where = start + len(data) if sections else 0
    program = (64, 56, 1) if segments else (0, 0, 0)
    header = struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        machine,
        1,
        0,
        program[0],
        where,
        0,
        64,
        *program[1:],
        64,
        count,
        count - 1 if sections else 0,
    )
    return ident + header + segments + data + table


@pytest.fixture
def make_fatbin() -> Callable[..., bytes]:
    """A factory of GPU code as nvcc lays it out: `make_fatbin([("sass", 87), ("ptx", 80)])` is one container."""
    return _fatbin


def _fatbin(
    codes: Sequence[tuple[str, int]], *, header_bytes: int = 64, code_bytes: int = 24, flags: int = 0x11
) -> bytes:
    entries = b""
    for kind, sm in codes:
        number = {"ptx": 1, "sass": 2, "linked later": 64}[kind]
        entry = struct.pack("<HHIQIIHHIIIQ", number, 0x101, header_bytes, code_bytes, 0, 0, 7, 8, sm, 0, 0, flags)
        entries += entry.ljust(header_bytes, b"\0") + b"\x5a" * code_bytes
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
