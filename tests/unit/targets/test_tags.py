from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker

from edgepack.targets import profiles, tags
from edgepack.targets.profiles import Profile

BUILTIN = profiles.load_profiles()
JETSON = BUILTIN["jetpack5-cpu"]  # CPython 3.8 on aarch64 with glibc 2.31
LAPTOP = BUILTIN["ubuntu22.04-x86_64"]  # CPython 3.10 on x86-64 with glibc 2.35


@pytest.mark.parametrize(
    ("profile", "wheel", "fits"),
    [
        (JETSON, "numpy-1.24.4-cp38-cp38-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", True),
        (JETSON, "numpy-1.24.4-cp38-cp38-manylinux2014_aarch64.whl", True),
        (JETSON, "a-1-cp38-cp38-manylinux_2_31_aarch64.whl", True),
        (JETSON, "a-1-cp38-cp38-manylinux_2_32_aarch64.whl", False),
        (JETSON, "a-1-cp38-cp38-manylinux_2_17_x86_64.whl", False),
        (JETSON, "a-1-cp39-cp39-manylinux_2_17_aarch64.whl", False),
        (JETSON, "a-1-cp37-abi3-manylinux_2_17_aarch64.whl", True),
        (JETSON, "a-1-cp39-abi3-manylinux_2_17_aarch64.whl", False),
        (JETSON, "a-1-cp38-cp38-linux_aarch64.whl", True),
        (JETSON, "a-1-cp38-cp38-musllinux_1_1_aarch64.whl", False),
        (JETSON, "a-1-cp38-cp38-macosx_11_0_arm64.whl", False),
        (JETSON, "a-1-cp38-cp38-manylinux1_aarch64.whl", False),
        (LAPTOP, "a-1-cp310-cp310-manylinux1_x86_64.whl", True),
        (LAPTOP, "a-1-cp310-cp310-manylinux2010_x86_64.whl", True),
        (LAPTOP, "a-1-cp310-cp310-manylinux_2_35_x86_64.whl", True),
        (LAPTOP, "a-1-cp310-cp310d-manylinux_2_17_x86_64.whl", False),
        (LAPTOP, "a-1-py3-none-any.whl", True),
        (LAPTOP, "a-1-py2-none-any.whl", False),
        (LAPTOP, "a-1-py2.py3-none-any.whl", True),
        (LAPTOP, "a-1-py310-none-any.whl", True),
        (LAPTOP, "a-1-py311-none-any.whl", False),
    ],
)
def test_what_loads_on_a_target(profile: Profile, wheel: str, fits: bool) -> None:
    assert (tags.rank(wheel, tags.ranked(profile)) is not None) == fits
    assert (tags.misfit(wheel, profile) == "") == fits


def test_the_best_fit_is_the_newest_platform_and_the_own_abi() -> None:
    order = [
        "a-1-cp310-cp310-manylinux_2_35_x86_64.whl",
        "a-1-cp310-cp310-manylinux_2_17_x86_64.whl",
        "a-1-cp310-abi3-manylinux_2_35_x86_64.whl",
        "a-1-cp39-abi3-manylinux_2_35_x86_64.whl",
        "a-1-py3-none-any.whl",
    ]
    known = tags.ranked(LAPTOP)
    ranks = [tags.rank(wheel, known) for wheel in order]
    assert None not in ranks
    assert ranks == sorted(ranks, key=lambda rank: rank or 0)


def test_a_misfit_is_told_in_words() -> None:
    assert "x86_64" in tags.misfit("a-1-cp38-cp38-manylinux_2_17_x86_64.whl", JETSON)
    assert "manylinux_2_31_aarch64 is the newest" in tags.misfit("a-1-cp38-cp38-manylinux_2_35_aarch64.whl", JETSON)
    assert "CPython 3.8" in tags.misfit("a-1-cp310-cp310-linux_aarch64.whl", JETSON)


@pytest.mark.parametrize("profile", BUILTIN.values(), ids=lambda profile: profile.name)
def test_markers_are_those_of_the_target(profile: Profile) -> None:
    environment = tags.marker_environment(profile)
    major, minor = profile.python.split(".")
    assert Marker(f"python_version == '{profile.python}'").evaluate(environment)
    assert not Marker(f"python_version < '{profile.python}'").evaluate(environment)
    assert Marker(f"python_full_version < '{major}.{int(minor) + 1}'").evaluate(environment)
    assert Marker(f"platform_machine == '{profile.machine}' and sys_platform == 'linux'").evaluate(environment)
    assert not Marker("platform_machine == 'arm64' or sys_platform == 'win32'").evaluate(environment)


@given(st.integers(17, 60), st.integers(17, 60), st.sampled_from(["x86_64", "aarch64"]))
def test_a_platform_loads_where_glibc_is_as_new(built_for: int, there: int, machine: str) -> None:
    profile = replace(LAPTOP, machine=machine, glibc=f"2.{there}")
    wheel = f"a-1-cp310-cp310-manylinux_2_{built_for}_{machine}.whl"
    assert (tags.misfit(wheel, profile) == "") == (built_for <= there)
