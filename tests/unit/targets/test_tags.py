from __future__ import annotations

from dataclasses import replace

import pytest

from edgepack.targets import tags
from edgepack.targets.profile_file import load_profiles
from edgepack.targets.profiles import Profile

ARM = replace(load_profiles()["linux-aarch64"], glibc="2.35")


@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-any",
        "cp38-cp38-linux_aarch64",  # of a wheel for any Python, the libraries travel
        "cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp313-cp313t-manylinux_2_35_aarch64",
    ],
)
def test_wheels_whose_libraries_load_on_the_target(tag: str) -> None:
    assert tags.misfit(f"fakelib-1.0-{tag}.whl", ARM) == ""


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("cp310-cp310-manylinux_2_28_x86_64", "manylinux_2_28_x86_64, and the target is Linux on aarch64"),
        ("cp310-cp310-manylinux_2_39_aarch64", "manylinux_2_35_aarch64 is the newest that loads there"),
        ("cp310-cp310-musllinux_1_2_aarch64", "musllinux_1_2_aarch64, and the target is Linux on aarch64"),
        ("cp310-cp310-macosx_11_0_arm64", "macosx_11_0_arm64"),
    ],
)
def test_other_wheels_are_refused(tag: str, why: str) -> None:
    assert why in tags.misfit(f"fakelib-1.0-{tag}.whl", ARM)


def test_the_best_fit_is_the_newest_platform_of_the_locked_python() -> None:
    known = tags.ranked(ARM)
    names = [f"x-1-{tag}.whl" for tag in (
        "cp311-cp311-manylinux_2_28_aarch64", "cp311-cp311-manylinux_2_17_aarch64", "py3-none-any",
    )]  # fmt: skip
    ranks = [tags.rank(name, known) for name in names]
    assert None not in ranks
    assert ranks == sorted(ranks, key=lambda rank: rank or 0)
    assert tags.rank("x-1-cp312-cp312-manylinux_2_28_aarch64.whl", known) is None
    assert tags.rank("no wheel", known) is None


def test_older_names_of_platforms_are_known() -> None:
    found = tags.platforms(load_profiles()["linux-x86_64"])
    assert found[0] == "manylinux_2_36_x86_64"
    assert {"manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(found)


def test_markers_see_the_target() -> None:
    environment = tags.marker_environment(ARM)
    assert (environment["platform_machine"], environment["sys_platform"]) == ("aarch64", "linux")
    assert environment["python_version"] == "3.11"


def test_this_machine_is_asked_where_the_profile_names_no_c_library(profile: Profile) -> None:
    assert tags.platforms(replace(profile, glibc=""))
