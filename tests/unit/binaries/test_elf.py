from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.binaries import elf
from edgepack.binaries.elf import Need
from edgepack.errors import StageFailedError

MakeElf = Callable[..., bytes]


@pytest.fixture
def so(tmp_path: Path) -> Path:
    return tmp_path / "a.so"


def test_needs_are_read(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(["GLIBC_2.17", "GLIBC_2.28", "GLIBCXX_3.4"], ["libc.so.6", "libz.so.1"]))
    binary = elf.read(so)
    assert (binary.machine, binary.bits) == ("EM_X86_64", 64)
    assert binary.symbols == {"GLIBC_2.17", "GLIBC_2.28", "GLIBCXX_3.4"}
    assert binary.libraries == {"libc.so.6", "libz.so.1"}
    so.write_bytes(make_elf(["GLIBCXX_3.4.30"], ["libstdc++.so.6"], provider="libstdc++.so.6"))
    assert elf.read(so).needs == {Need("libstdc++.so.6", "GLIBCXX_3.4.30")}


def test_paths_and_flags_are_read(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(runpath="$ORIGIN/../x:/opt/lib:", stack=7, flags=0x4))
    binary = elf.read(so)
    assert binary.search_paths == ("$ORIGIN/../x", "/opt/lib", "")
    assert (binary.executable_stack, binary.text_relocations) == (True, True)
    so.write_bytes(make_elf(stack=6, flags=0x8, runpath=""))
    binary = elf.read(so)
    assert (binary.search_paths, binary.executable_stack, binary.text_relocations) == ((), False, False)


def test_where_gpu_code_lies_is_read(so: Path, make_elf: MakeElf) -> None:
    content = b"GPU code " * 9
    so.write_bytes(make_elf(["GLIBC_2.17"], fatbin=content))
    [extent] = elf.read(so).gpu_code
    assert so.read_bytes()[extent.offset : extent.offset + extent.size] == content
    so.write_bytes(make_elf(["GLIBC_2.17"]))
    assert elf.read(so).gpu_code == ()


def linked(so: Path, *options: str) -> None:
    """Write `so` with a real compiler and linker, or skip the test."""
    if not shutil.which("gcc"):
        pytest.skip("there is no C compiler")
    source = so.with_name("a.c")
    source.write_text('#include <stdio.h>\nint answer(void) { return puts("42"); }\n', encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", *options, str(source), "-o", str(so)]
    subprocess.run(command, check=True, capture_output=True)


def test_a_real_linker_writes_what_is_read(so: Path) -> None:
    linked(so, "-Wl,-rpath,$ORIGIN/libs:/opt/x", "-Wl,-z,execstack")
    binary = elf.read(so)
    assert binary.search_paths == ("$ORIGIN/libs", "/opt/x")
    assert binary.executable_stack
    assert not binary.text_relocations
    assert binary.libraries == {"libc.so.6"}
    assert any(need.library == "libc.so.6" and need.version.startswith("GLIBC_2.") for need in binary.needs)


def test_a_file_without_sections_is_refused(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(sections=False))
    with pytest.raises(StageFailedError):
        elf.read(so)


@pytest.mark.parametrize(
    ("section", "why"), [(".gnu.version_r", "needs versions of symbols"), (".dynamic", "is linked dynamically")]
)
def test_needs_that_no_section_lists_are_refused(so: Path, section: str, why: str) -> None:
    """The loader finds them through the dynamic segment all the same."""
    linked(so)
    whole = bytearray(so.read_bytes())
    with so.open("rb") as stream:
        file = ELFFile(stream)
        number = file.get_section_index(section)
        place = file["e_shoff"] + number * file["e_shentsize"] + 4  # of sh_type
    whole[place : place + 4] = (1).to_bytes(4, "little")  # SHT_PROGBITS
    so.write_bytes(whole)
    ctypes.CDLL(str(so))
    with pytest.raises(StageFailedError) as caught:
        elf.read(so)
    assert why in caught.value.why


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_reported_and_never_crashes(so: Path, make_elf: MakeElf, data: st.DataObject) -> None:
    whole = bytearray(make_elf(["GLIBC_2.17", "GLIBC_2.28"], ["libc.so.6"], runpath="/x", stack=7, fatbin=b"GPU code"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    so.write_bytes(whole[: data.draw(st.integers(4, len(whole)))])
    try:
        elf.read(so)
    except StageFailedError as error:
        assert so.name in error.what
