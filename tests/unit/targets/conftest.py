"""Fixtures for the tests of `edgepack.targets`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgepack.targets import wheels
from edgepack.targets.profiles import Profile, ProfileEngine

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
        engines={"onnxruntime": ProfileEngine("CPUExecutionProvider", "linux-x86_64-cpu.txt")},
    )


@pytest.fixture
def make_elf() -> Callable[..., bytes]:
    """A factory of the smallest ELF files that state needs: `make_elf(symbols, libraries, machine=)`."""
    return _elf


def _elf(
    symbols: Sequence[str] = (), libraries: Sequence[str] = (), *, machine: int = EM_X86_64, sections: bool = True
) -> bytes:
    """64-bit little-endian ELF with .dynstr, .gnu.version_r and .dynamic (System V gABI, chapter 4)."""
    strings = b"\0"
    offsets = {}
    for text in ("libfake.so", *symbols, *libraries):
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    needs = b""
    if symbols:
        needs = struct.pack("<HHIII", 1, len(symbols), offsets["libfake.so"], 16, 0)
        for index, symbol in enumerate(symbols):
            last = index == len(symbols) - 1
            needs += struct.pack("<IHHII", 0, 0, 2 + index, offsets[symbol], 0 if last else 16)
    dynamic = b"".join(struct.pack("<QQ", 1, offsets[library]) for library in libraries) + struct.pack("<QQ", 0, 0)
    names = b"\0.dynstr\0.gnu.version_r\0.dynamic\0.shstrtab\0"
    body = [(1, 3, strings, 0, 0, 0), (9, 0x6FFFFFFE, needs, 1, 1 if symbols else 0, 0)]
    body += [(24, 6, dynamic, 1, 0, 16), (33, 3, names, 0, 0, 0)]
    data, table = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, kind, content, link, info, entry in body:
        if kind == 0x6FFFFFFE and not content:
            kind = 1
        table += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, 64 + len(data), len(content), link, info, 1, entry)
        data += content
    count = len(body) + 1 if sections else 0
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    where = 64 + len(data) if sections else 0
    header = struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, where, 0, 64, 0, 0, 64, count, count - 1 if sections else 0
    )
    return ident + header + data + table
