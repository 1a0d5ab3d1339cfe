from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.errors import StageFailedError
from edgepack.targets import elf
from edgepack.targets.profiles import Profile

EM_AARCH64 = 183
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


def test_a_real_extension_module_needs_some_glibc() -> None:
    module = Path(np._core._multiarray_umath.__file__ if hasattr(np, "_core") else np.core._multiarray_umath.__file__)
    binary = elf.read(module)
    assert "libc.so.6" in binary.libraries
    assert any(symbol.startswith("GLIBC_2.") for symbol in binary.symbols)


def test_versions_compare_as_numbers(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(["GLIBC_2.4", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBCXX_9.9"]))
    assert elf.oldest_glibc([elf.read(so)]) == "2.17"
    assert elf.oldest_glibc([]) == elf.ANY_GLIBC


def test_a_loader_feature_counts_as_the_release_that_brought_it(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(["GLIBC_2.34", "GLIBC_ABI_DT_RELR"]))
    assert elf.oldest_glibc([elf.read(so)]) == "2.36"


def test_another_machine_is_refused(so: Path, make_elf: MakeElf, profile: Profile) -> None:
    so.write_bytes(make_elf(machine=EM_AARCH64))
    with pytest.raises(StageFailedError) as caught:
        elf.check(so, elf.read(so), profile)
    assert "EM_AARCH64" in caught.value.why
    elf.check(so, elf.read(so), replace(profile, elf_machine="EM_AARCH64"))


def test_another_word_size_is_refused(so: Path, make_elf: MakeElf, profile: Profile) -> None:
    so.write_bytes(make_elf())
    with pytest.raises(StageFailedError):
        elf.check(so, elf.read(so), replace(profile, elf_bits=32))


@pytest.mark.parametrize("symbol", ["GLIBC_PRIVATE", "GLIBC_ABI_NEWER_THAN_US", "GLIBC_2.x"])
def test_symbols_of_no_known_glibc_are_refused(so: Path, make_elf: MakeElf, profile: Profile, symbol: str) -> None:
    so.write_bytes(make_elf(["GLIBC_2.17", symbol]))
    with pytest.raises(StageFailedError) as caught:
        elf.check(so, elf.read(so), profile)
    assert symbol in caught.value.why


def test_a_file_without_sections_is_refused(so: Path, make_elf: MakeElf) -> None:
    so.write_bytes(make_elf(sections=False))
    with pytest.raises(StageFailedError):
        elf.read(so)


def test_libraries_of_the_system_leave_out_glibc_and_what_is_carried() -> None:
    binary = elf.Binary("EM_X86_64", 64, frozenset(), frozenset({"libc.so.6", "libm.so.6", "libz.so.1", "libx.so"}))
    assert elf.from_system([binary], {"libx.so"}) == ("libz.so.1",)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_reported_and_never_crashes(so: Path, make_elf: MakeElf, data: st.DataObject) -> None:
    whole = bytearray(make_elf(["GLIBC_2.17", "GLIBC_2.28"], ["libc.so.6"]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    so.write_bytes(whole[: data.draw(st.integers(4, len(whole)))])
    try:
        elf.oldest_glibc([elf.read(so)])
    except StageFailedError as error:
        assert so.name in error.what
