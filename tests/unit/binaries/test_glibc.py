from __future__ import annotations

from dataclasses import replace

import pytest

from edgepack.binaries import glibc
from edgepack.binaries.elf import Binary, Need
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile


def needing(*versions: str, library: str = "libc.so.6") -> Binary:
    return Binary("EM_X86_64", 64, frozenset(Need(library, version) for version in versions), frozenset({library}))


def test_versions_compare_as_numbers_and_features_of_the_loader_as_their_release() -> None:
    assert glibc.oldest_glibc([needing("GLIBC_2.4", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBCXX_9.9")]) == "2.17"
    assert glibc.oldest_glibc([]) == glibc.ANY_GLIBC
    assert glibc.oldest_glibc([needing("GLIBC_2.34", "GLIBC_ABI_DT_RELR")]) == "2.36"


@pytest.mark.parametrize("symbol", ["GLIBC_PRIVATE", "GLIBC_ABI_NEWER_THAN_US", "GLIBC_2.x"])
def test_symbols_of_no_known_glibc_are_refused(profile: Profile, symbol: str) -> None:
    with pytest.raises(StageFailedError) as caught:
        glibc.check_glibc("a.so", needing("GLIBC_2.17", symbol), profile)
    assert symbol in caught.value.why


@pytest.mark.parametrize(("target", "fits"), [("2.28", True), ("2.35", True), ("2.27", False), ("2.4", False)])
def test_glibc_of_the_target_has_to_be_as_new(profile: Profile, target: str, fits: bool) -> None:
    binary = needing("GLIBC_2.2.5", "GLIBC_2.28")
    meant = replace(profile, glibc=target)
    if fits:
        glibc.check_glibc("pkg/a.so", binary, meant)
        return
    with pytest.raises(StageFailedError, match=r"pkg/a\.so does not run on target test-target") as caught:
        glibc.check_glibc("pkg/a.so", binary, meant)
    assert caught.value.why == f"it needs GLIBC_2.28, and the target has glibc {target}"


def test_without_a_glibc_in_the_profile_only_the_device_compares(profile: Profile) -> None:
    glibc.check_glibc("a.so", needing("GLIBC_2.99"), profile)
    glibc.check_gcc_libraries("a.so", needing("GLIBCXX_3.4.99", library="libstdc++.so.6"), (), profile)


@pytest.mark.parametrize(
    ("version", "glibcxx", "fits"),
    [
        ("GLIBCXX_3.4.30", "3.4.30", True),
        ("GLIBCXX_3.4.9", "3.4.28", True),
        ("GLIBCXX_3.4.31", "3.4.30", False),
        ("CXXABI_1.3.13", "3.4.30", True),
        ("CXXABI_1.3.13", "3.4.28", False),
        ("CXXABI_1.3", "3.4.28", True),
        ("CXXABI_TM_1", "3.4.28", True),
        ("GCC_12.0.0", "3.4.30", True),
        ("GCC_12.0.0", "3.4.28", False),
        ("GCC_3.0", "3.4.28", True),
        ("GLIBCXX_3.4.34", "3.4.99", True),
    ],
)
def test_libraries_of_gcc_have_to_be_as_new(profile: Profile, version: str, glibcxx: str, fits: bool) -> None:
    binary, meant = needing(version, library="libstdc++.so.6"), replace(profile, glibcxx=glibcxx)
    if fits:
        glibc.check_gcc_libraries("a.so", binary, (), meant)
        return
    with pytest.raises(StageFailedError) as caught:
        glibc.check_gcc_libraries("a.so", binary, (), meant)
    assert f"it needs {version}, " in caught.value.why
    assert f"GLIBCXX_{glibcxx}" in caught.value.why


def test_what_is_carried_the_device_need_not_have(profile: Profile) -> None:
    binary, meant = needing("GLIBCXX_3.4.33", library="libstdc++-5e9e.so.6"), replace(profile, glibcxx="3.4.28")
    glibc.check_gcc_libraries("a.so", binary, {"libstdc++-5e9e.so.6"}, meant)
    assert glibc.oldest_libstdcxx([binary], {"libstdc++-5e9e.so.6"}) == ""
    assert glibc.oldest_libstdcxx([binary], ()) == "3.4.33"


def test_of_a_release_beyond_the_table_the_last_known_one_counts() -> None:
    assert glibc.limits_of("3.4.40") == {"GLIBCXX": "3.4.40", "CXXABI": "1.3.15", "GCC": "14"}
    assert glibc.limits_of("3.4.25") == {"GLIBCXX": "3.4.25"}
