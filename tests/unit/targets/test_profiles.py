from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle import wheels
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, TargetUnreachableError
from edgepack.targets import package_data, profiles
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Host, Profile
from edgepack_runtime.bundle.model_config import CPU, CUDA

HOST = Host(system="Linux", machine="x86_64", libc="glibc", implementation="CPython", python="3.11")


KNOWN = {
    "debian12-x86_64": ("x86_64", "3.11", "2.36", "3.4.30"),
    "jetpack5": ("aarch64", "3.8", "2.31", "3.4.28"),
    "jetpack5-cpu": ("aarch64", "3.8", "2.31", "3.4.28"),
    "jetpack6": ("aarch64", "3.10", "2.35", "3.4.30"),
    "jetpack6-cpu": ("aarch64", "3.10", "2.35", "3.4.30"),
    "jetpack7": ("aarch64", "3.12", "2.39", "3.4.33"),
    "jetpack7-cpu": ("aarch64", "3.12", "2.39", "3.4.33"),
    "rpi-bookworm": ("aarch64", "3.11", "2.36", "3.4.30"),
    "ubuntu20.04-x86_64": ("x86_64", "3.8", "2.31", "3.4.28"),
    "ubuntu22.04-aarch64": ("aarch64", "3.10", "2.35", "3.4.30"),
    "ubuntu22.04-x86_64": ("x86_64", "3.10", "2.35", "3.4.30"),
    "ubuntu24.04-aarch64": ("aarch64", "3.12", "2.39", "3.4.33"),
    "ubuntu24.04-x86_64": ("x86_64", "3.12", "2.39", "3.4.33"),
    "ubuntu24.04-x86_64-cuda12": ("x86_64", "3.12", "2.39", "3.4.33"),
    "ubuntu24.04-x86_64-cuda13": ("x86_64", "3.12", "2.39", "3.4.33"),
}  # machine, Python, glibc and libstdc++ as these systems come


def test_this_version_builds_exactly_these() -> None:
    found = dict(profiles.load_profiles())
    host = found.pop("linux-x86_64-cpu")
    assert (host.glibc, host.glibcxx, host.cuda, host.jetpack) == ("", "", None, "")
    assert {name: (one.machine, one.python, one.glibc, one.glibcxx) for name, one in found.items()} == KNOWN


def test_what_profiles_say_of_gpus() -> None:
    found = {name: profile.cuda for name, profile in profiles.load_profiles().items() if profile.cuda}
    assert found["jetpack6"] == profiles.Cuda(version="12.6", sm=("87",))
    assert sorted(found) == [
        "jetpack5", "jetpack6", "jetpack7", "ubuntu24.04-x86_64-cuda12", "ubuntu24.04-x86_64-cuda13",
    ]  # fmt: skip
    for profile in profiles.load_profiles().values():
        assert profile.provider == (CPU if profile.cuda is None else CUDA)
        assert profile.by_path == profile.name.startswith("jetpack") * (profile.cuda is not None)


def test_host_python_is_the_running_one() -> None:
    found = profiles.load_profiles()["linux-x86_64-cpu"]
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_every_profile_has_a_lock_for_every_python_it_names() -> None:
    for profile in profiles.load_profiles().values():
        for python in profile.pythons:
            locked = wheels.parse_lock(package_data.text("locks", profile.lock), replace(profile, python=python))
            names = {package.name for package in locked}
            own = {"onnxruntime" if profile.by_path else profile.package}
            assert names >= own
            assert all(name.startswith("nvidia-") for name in names - own)


def test_what_serves_adds_to_every_lock_and_is_pure_python() -> None:
    """A package of two locks could have two versions; a binary would have to fit the target."""
    needed = {"anyio", "click", "h11", "prometheus-client", "starlette", "typing-extensions", "uvicorn"}
    for profile in profiles.load_profiles().values():
        for python in profile.pythons:
            there = replace(profile, python=python)
            locked = wheels.parse_lock(package_data.text("locks", profile.serve_lock), there)
            older = {"3.10": {"exceptiongroup"}, "3.8": {"exceptiongroup", "sniffio"}}.get(python, set())
            assert {package.name for package in locked} == needed | older
            besides = wheels.parse_lock(package_data.text("locks", profile.lock), there)
            assert not {package.name for package in locked} & {package.name for package in besides}


def test_a_fitting_host_passes(profile: Profile) -> None:
    profiles.check_host(profile, HOST)


@pytest.mark.parametrize(
    "change",
    [{"system": "Darwin", "libc": "unknown"}, {"machine": "aarch64"}, {"libc": "unknown"}],
    ids=["macos", "arm64", "musl"],
)
def test_another_kind_of_machine_is_not_the_target(profile: Profile, change: dict[str, str]) -> None:
    with pytest.raises(TargetUnreachableError) as caught:
        profiles.check_host(profile, replace(HOST, **change))
    assert all(value in caught.value.why for value in change.values())
    assert caught.value.fix


@pytest.mark.parametrize("change", [{"python": "3.9"}, {"python": "3.14"}, {"implementation": "PyPy"}])
def test_a_python_without_wheels_is_unfit(profile: Profile, change: dict[str, str]) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        profiles.check_host(profile, replace(HOST, **change))
    assert "3.10, 3.11, 3.12" in caught.value.why


def test_this_host_speaks_the_words_of_a_profile() -> None:
    host = profiles.this_host()
    assert host.implementation == platform.python_implementation()
    assert host.libc in ("glibc", "unknown")
    assert host.python.split(".")[0] == "3"


def test_a_target_of_another_machine_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "this_host", lambda: replace(HOST, machine="aarch64"))
    with pytest.raises(TargetUnreachableError, match="linux-x86_64-cpu"):
        BuildContext().profile("linux-x86_64-cpu")


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(RecipeInvalidError) as caught:
        BuildContext().profile("jetpack66")
    assert "did you mean jetpack6?" in caught.value.what
    assert "linux-x86_64-cpu" in caught.value.why


LOCKS = sorted(path.name for path in (Path(package_data.__file__).parent / "locks").glob("*.txt"))


@pytest.mark.parametrize("name", LOCKS)
def test_locks_and_facts_name_no_index(name: str) -> None:
    lock = package_data.text("locks", name)
    uncommented = [line.strip() for line in lock.splitlines() if not line.startswith("#")]
    assert not [line for line in uncommented if line.startswith(("-i", "--index", "--extra", "--find", "-f"))]
    assert "://" not in lock


def test_no_lock_lies_about_unused() -> None:
    every = profiles.load_profiles().values()
    used = {profile.lock for profile in every}
    assert used | {profile.serve_lock for profile in every} == set(LOCKS)
