from __future__ import annotations

from dataclasses import replace

import pytest

from edgepack.bundle import checks
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile


@pytest.fixture
def orin(profile: Profile) -> Profile:
    return replace(profile, name="orin", machine="aarch64", elf_machine="EM_AARCH64", python="3.10", glibc="2.35")


@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-any",
        "py2.py3-none-any",
        "py310-none-any",
        "cp310-cp310-linux_aarch64",
        "cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp310-cp310-manylinux_2_35_aarch64",
        "cp39-abi3-manylinux_2_28_aarch64",
        "cp310-none-linux_aarch64",
    ],
)
def test_wheels_for_the_target_fit(orin: Profile, tag: str) -> None:
    checks.check_wheel(f"fakelib-1.0-{tag}.whl", orin)


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("cp311-cp311-linux_aarch64", "cp311-cp311, and the target runs CPython 3.10"),
        ("cp310-cp310t-linux_aarch64", "cp310-cp310t, and the target runs CPython 3.10"),
        ("cp311-abi3-linux_aarch64", "cp311-abi3, and the target runs CPython 3.10"),
        ("pp310-pypy310_pp73-linux_aarch64", "the target runs CPython 3.10"),
        ("py2-none-any", "the target runs CPython 3.10"),
        ("cp310-cp310-manylinux_2_28_x86_64", "manylinux_2_28_x86_64, and the target is Linux on aarch64"),
        ("cp310-cp310-linux_x86_64", "linux_x86_64, and the target is Linux on aarch64"),
        ("cp310-cp310-manylinux_2_39_aarch64", "manylinux_2_35_aarch64 is the newest that loads there"),
        ("cp310-cp310-musllinux_1_2_aarch64", "musllinux_1_2_aarch64, and the target is Linux on aarch64"),
        ("cp310-cp310-macosx_11_0_arm64", "macosx_11_0_arm64"),
    ],
)
def test_other_wheels_are_refused(orin: Profile, tag: str, why: str) -> None:
    name = f"fakelib-1.0-{tag}.whl"
    with pytest.raises(StageFailedError) as caught:
        checks.check_wheel(name, orin)
    assert caught.value.what == f"{name} does not run on target orin"
    assert why in caught.value.why
    assert "CPython 3.10 on aarch64" in caught.value.fix


def test_a_name_that_is_no_wheels_is_refused(orin: Profile) -> None:
    with pytest.raises(StageFailedError, match="is not the name of a wheel"):
        checks.check_wheel("fakelib.whl", orin)


@pytest.mark.parametrize(
    "name", ["a.cpython-310-aarch64-linux-gnu.so", "p/a.abi3.so", "p/libx.so.1", "p/plain.so", "p/cpython-399.txt"]
)
def test_modules_that_the_target_loads(orin: Profile, name: str) -> None:
    checks.check_extension(name, orin)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("p/a.cpython-311-aarch64-linux-gnu.so", "CPython 311"),
        ("p/a.cpython-310d-aarch64-linux-gnu.so", "CPython 310d"),
        ("p/a.cpython-310-x86_64-linux-gnu.so", "x86_64-linux-gnu"),
    ],
)
def test_other_modules_are_refused(orin: Profile, name: str, why: str) -> None:
    with pytest.raises(StageFailedError) as caught:
        checks.check_extension(name, orin)
    assert why in caught.value.why


def test_modules_are_counted_by_their_names() -> None:
    names = ["a.cpython-310-aarch64-linux-gnu.so", "b.abi3.so", "c.abi3.so", "libd.so", "e.py"]
    assert checks.extensions(names) == (1, 2)
