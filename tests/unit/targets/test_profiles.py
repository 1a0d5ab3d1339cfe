from __future__ import annotations

import platform
import sys
from dataclasses import replace

import pytest

from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, TargetUnreachableError
from edgepack.targets import facts, profiles, wheels
from edgepack.targets.profiles import Host, Profile
from edgepack_runtime.model_config import ENGINES

HOST = Host(system="Linux", machine="x86_64", libc="glibc", implementation="CPython", python="3.11")


def test_this_version_builds_exactly_these() -> None:
    assert list(profiles.load_profiles()) == ["linux-x86_64-cpu"]


def test_host_python_is_the_running_one() -> None:
    found = profiles.load_profiles()["linux-x86_64-cpu"]
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_every_profile_has_a_lock_for_every_python_it_names() -> None:
    for profile in profiles.load_profiles().values():
        for engine, of_engine in profile.engines.items():
            for python in profile.pythons:
                locked = wheels.parse_lock(facts.text("locks", of_engine.lock), replace(profile, python=python))
                assert [package.name for package in locked] == sorted(["numpy", engine, "tokenizers"])


def test_what_serves_adds_to_every_engine_and_is_pure_python() -> None:
    """A package of two locks could have two versions; a binary would have to fit the target."""
    needed = {"anyio", "click", "h11", "prometheus-client", "starlette", "typing-extensions", "uvicorn"}
    for profile in profiles.load_profiles().values():
        for python in profile.pythons:
            there = replace(profile, python=python)
            locked = wheels.parse_lock(facts.text("locks", profile.serve_lock), there)
            older = {"exceptiongroup"} if python == "3.10" else set()
            assert {package.name for package in locked} == needed | older
            for engine in profile.engines.values():
                besides = wheels.parse_lock(facts.text("locks", engine.lock), there)
                assert not {package.name for package in locked} & {package.name for package in besides}


def test_the_engines_of_profiles_are_those_of_the_runtime() -> None:
    for profile in profiles.load_profiles().values():
        assert set(profile.engines) <= set(ENGINES)


def test_what_travels_beside_an_engine_is_the_same_for_all() -> None:
    """So that answers of one release differ by the engine alone."""
    profile = profiles.load_profiles()["linux-x86_64-cpu"]
    for python in profile.pythons:
        besides = [
            [
                one
                for one in wheels.parse_lock(facts.text("locks", of.lock), replace(profile, python=python))
                if one.name not in ENGINES
            ]
            for of in profile.engines.values()
        ]
        assert besides[0] == besides[1]


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
        profiles.profile_for("linux-x86_64-cpu")


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(RecipeInvalidError) as caught:
        profiles.profile_for("jetpack6")
    assert "linux-x86_64-cpu" in caught.value.why


@pytest.mark.parametrize("kind", ["", "-openvino", "-serve"])
def test_locks_and_facts_name_no_index(kind: str) -> None:
    lock = facts.text("locks", f"linux-x86_64-cpu{kind}.txt")
    uncommented = [line.strip() for line in lock.splitlines() if not line.startswith("#")]
    assert not [line for line in uncommented if line.startswith(("-i", "--index", "--extra", "--find", "-f"))]
    assert "://" not in lock
