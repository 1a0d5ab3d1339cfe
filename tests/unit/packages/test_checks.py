from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.artifacts import ContentCheck
from edgepack.binaries import elf, fit
from edgepack.binaries.fit import SystemRequirements
from edgepack.errors import StageFailedError
from edgepack.packages import checks
from edgepack.packages.checks import Carried
from edgepack.targets.profiles import Cuda, Profile

EM_AARCH64 = 183
WHEEL = "fakelib-1.0-cp311-cp311-linux_x86_64.whl"
MakeElf = Callable[..., bytes]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., SystemRequirements]:
    """A function that writes files as those of one wheel, and checks them."""

    def run(
        files: Mapping[str, bytes], profile: Profile, wheel: str = WHEEL, licenses: tuple[str, ...] = ("licenses/a",)
    ) -> SystemRequirements:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        return checks.run(tmp_path, [Carried("fakelib 1.0", wheel, tuple(files), licenses)], profile)

    return run


@pytest.fixture
def jetson(profile: Profile) -> Profile:
    return replace(profile, name="jetpack6", jetpack="6", cuda=Cuda("12.6", ("87",)), glibc="2.35", glibcxx="3.4.30")


def test_what_was_found_and_what_the_target_has(
    check: Callable[..., SystemRequirements], make_elf: MakeElf, make_fatbin: Callable[..., bytes], jetson: Profile
) -> None:
    files = {
        "fakelib/a.so": make_elf(["GLIBC_2.28"], ["libx.so.1", "libcudart.so.12"]),
        "fakelib/b.so": make_elf(["GLIBCXX_3.4.22"], provider="libstdc++.so.6"),
        "fakelib.libs/libx.so.1": make_elf(fatbin=make_fatbin([("sass", 87)])),
        "fakelib/__init__.py": b"",
    }
    needs = check(files, jetson)
    assert (needs.glibc, needs.libraries, needs.binaries) == ("2.28", ("libcudart.so.12",), 3)
    assert needs.checks.passed == (
        ContentCheck("wheels", "1"),
        ContentCheck("licences", "1"),
        ContentCheck("ELF", "3"),
        ContentCheck("glibc", "2.28", "<= 2.35"),
        ContentCheck("libstdc++", "3.4.22", "<= 3.4.30"),
        ContentCheck("GPU code", "machine code for sm_87, no PTX", "for sm_87", "fakelib 1.0"),
    )
    assert needs.checks.notes == ()


def test_what_is_odd_and_not_wrong_is_a_note(
    check: Callable[..., SystemRequirements], make_elf: MakeElf, profile: Profile
) -> None:
    needs = check({"fakelib/a.so": make_elf(libraries=["libgomp.so.1"], runpath="/opt/lib", stack=7)}, profile)
    assert [line.split(" ", 1)[0] for line in needs.checks.notes] == ["fakelib/a.so"] * 3
    for word in ("/opt/lib", "stack", "libgomp.so.1"):
        assert any(word in line for line in needs.checks.notes)
    assert needs.checks.passed[-1] == ContentCheck("libstdc++", "none")


def test_another_machine_or_word_size_is_refused(tmp_path: Path, make_elf: MakeElf, profile: Profile) -> None:
    so = tmp_path / "a.so"
    so.write_bytes(make_elf(machine=EM_AARCH64))
    with pytest.raises(StageFailedError) as caught:
        fit.check_machine("a.so", elf.read(so), profile)
    assert "EM_AARCH64" in caught.value.why
    fit.check_machine("a.so", elf.read(so), profile.on("aarch64"))
    so.write_bytes(make_elf(machine=EM_AARCH64)[:4] + b"\1" + make_elf(machine=EM_AARCH64)[5:])
    with pytest.raises(StageFailedError):
        fit.check_machine("a.so", elf.read(so), profile.on("aarch64"))


@pytest.mark.parametrize(("place", "value", "why"), [(5, 2, "big-endian"), (7, 9, "ELFOSABI_FREEBSD")])
def test_another_byte_order_or_system_is_refused(
    tmp_path: Path, profile: Profile, place: int, value: int, why: str
) -> None:
    """A big-endian ARM64 has the machine and the word size of any other."""
    so = tmp_path / "a.so"
    order = ">" if value == 2 else "<"
    header = bytearray(b"\x7fELF" + bytes([2, 1, 1]) + bytes(9))
    header[place] = value
    header += struct.pack(f"{order}HHIQQQIHHHHHH", 3, EM_AARCH64, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2, 1)
    sections = struct.pack(f"{order}IIQQQQIIQQ", *[0] * 10)
    sections += struct.pack(f"{order}IIQQQQIIQQ", 1, 3, 0, 0, 64 + 128, 11, 0, 0, 1, 0)
    so.write_bytes(bytes(header) + sections + b"\0.shstrtab\0")
    with pytest.raises(StageFailedError) as caught:
        fit.check_machine("a.so", elf.read(so), profile.on("aarch64"))
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("fakelib/a.so", {"machine": EM_AARCH64}, "EM_AARCH64"),
        ("fakelib/a.so", {"symbols": ["GLIBC_2.39"]}, "glibc 2.35"),
        ("fakelib/a.so", {"symbols": ["GLIBCXX_3.4.33"]}, "GLIBCXX_3.4.30"),
        ("fakelib/a.so", {"runpath": "/tmp/build"}, "/tmp/build"),
        ("fakelib/a.so", {"libraries": ["libcublas.so.13"]}, "CUDA 12.6"),
        ("fakelib/a.cpython-312-x86_64-linux-gnu.so", {}, "an extension module"),
        ("fakelib/a.abi3.so", {}, "an extension module"),
    ],
)
def test_every_check_is_made(
    check: Callable[..., SystemRequirements],
    make_elf: MakeElf,
    jetson: Profile,
    name: str,
    options: dict[str, object],
    why: str,
) -> None:
    with pytest.raises(StageFailedError) as caught:
        check({name: make_elf(**options)}, jetson)
    assert caught.value.what.startswith(name)
    assert why in caught.value.why


def test_gpu_code_for_other_gpus_only_is_refused(
    check: Callable[..., SystemRequirements], make_elf: MakeElf, make_fatbin: Callable[..., bytes], jetson: Profile
) -> None:
    with pytest.raises(StageFailedError, match=r"fakelib 1\.0 has no code for sm_87"):
        check({"fakelib/kernels.so": make_elf(fatbin=make_fatbin([("sass", 90)]))}, jetson)


def test_a_wheel_for_another_machine_or_without_a_licence_text_is_refused(
    check: Callable[..., SystemRequirements], profile: Profile
) -> None:
    with pytest.raises(StageFailedError, match="does not run on target"):
        check({"fakelib/__init__.py": b""}, profile, wheel="fakelib-1.0-cp311-cp311-win_amd64.whl")
    for licenses in ((), ("licenses/fakelib-1.0/sboms/crates.cyclonedx.json",)):
        with pytest.raises(StageFailedError, match=r"fakelib 1\.0 comes without a licence text"):
            check({"fakelib/__init__.py": b""}, profile, licenses=licenses)
