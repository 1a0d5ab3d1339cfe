"""Target profiles: the facts of `profiles.toml`, and whether this machine can build for one.

This version builds for the machine's own ABI: wheels come through this interpreter's pip, and the bundle's
self-test and gate run here. There is no way yet to build for another machine, and `check_host` says so.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, TargetUnreachableError
from edgepack.targets import facts
from edgepack_runtime.device import libc

_HOST_PYTHON = "host"


@dataclass(frozen=True)
class ProfileEngine:
    """What may run the model on a target, and the wheels that this takes."""

    provider: str  # in the engine's own words; it must be active
    lock: str  # file in `locks/`


@dataclass(frozen=True)
class Cuda:
    """The GPU side of a target: what is installed there, and which GPUs are meant."""

    version: str  # of the CUDA toolkit, as "12.6"
    sm: tuple[str, ...]  # compute capabilities without the point, as "87"
    tensorrt: str = ""  # "10.3"; empty where there is none


@dataclass(frozen=True)
class Profile:
    """One target. `system` and `machine` are `platform`'s words; `python` is the CPython ABI as "3.11"."""

    name: str
    summary: str
    system: str
    machine: str
    libc: str
    python: str
    pythons: tuple[str, ...]  # versions that the lock holds wheels for
    elf_machine: str  # e_machine of every carried binary, by its name in the ELF standard
    elf_bits: int
    engines: Mapping[str, ProfileEngine]  # by the name that recipe and `model.json` give them
    serve_lock: str = ""  # file in `locks/` with what `serve` needs besides; empty where it cannot be had
    glibc: str = ""  # release of the target's C library, "2.35"; empty: the builder's own, and only the device compares
    glibcxx: str = ""  # newest GLIBCXX symbol version of its libstdc++, "3.4.30"; empty likewise
    cuda: Cuda | None = None
    jetpack: str = ""  # major version of a Jetson's JetPack, "6"; empty elsewhere
    isa: tuple[str, ...] | None = None  # what each of its CPUs has, in words of /proc/cpuinfo; None: nobody says


@dataclass(frozen=True)
class Host:
    """What this machine is, in the words of a profile."""

    system: str
    machine: str
    libc: str
    implementation: str
    python: str


def this_host() -> Host:
    """The machine and interpreter that run this process."""
    return Host(
        system=platform.system(),
        machine=platform.machine(),
        libc=libc()[0],
        implementation=platform.python_implementation(),
        python=_running_python(),
    )


def load_profiles() -> dict[str, Profile]:
    """All profiles that this version can build, by name, sorted; `python = "host"` is resolved."""
    return {name: _profile(name, table) for name, table in sorted(facts.tables("profiles.toml").items())}


def profile_for(target: str) -> Profile:
    """The profile of a recipe's target, when this machine can build for it. Call it before hours are spent.

    Raises:
        RecipeInvalidError: there is no such profile.
        TargetUnreachableError, EnvironmentUnfitError: as `check_host`.
    """
    profiles = load_profiles()
    if target not in profiles:
        raise RecipeInvalidError(
            f"there is no target {target}",
            why=f"this version of edgepack builds for: {', '.join(profiles)}",
            fix="correct `targets` in the recipe",
        )
    check_host(profiles[target])
    return profiles[target]


def check_host(profile: Profile, host: Host | None = None) -> None:
    """Whether `host` (this machine, unless given) can build for `profile`.

    Raises:
        TargetUnreachableError: the host is not of the target's system, machine or C library.
        EnvironmentUnfitError: the interpreter is one that the target has no wheels for.
    """
    host = host or this_host()
    wanted = (profile.system, profile.machine, profile.libc)
    if (host.system, host.machine, host.libc) != wanted:
        raise TargetUnreachableError(
            f"target {profile.name} cannot be built on this machine",
            why=f"it is {' '.join(wanted)}; this machine is {host.system} {host.machine} {host.libc}",
            fix=f"build on {' '.join(wanted)} (a container will do), or take the target out of the recipe",
        )
    if host.implementation != "CPython" or host.python not in profile.pythons:
        raise EnvironmentUnfitError(
            f"target {profile.name} has no wheels for {host.implementation} {host.python}",
            why=f"its lock holds wheels for CPython {', '.join(profile.pythons)}",
            fix=f"run edgepack on CPython {profile.pythons[-1]}",
        )


def _profile(name: str, table: dict[str, Any]) -> Profile:
    python = _running_python() if table["python"] == _HOST_PYTHON else table["python"]
    engines = {engine: ProfileEngine(**facts_of) for engine, facts_of in table["engines"].items()}
    cuda = Cuda(**{**table["cuda"], "sm": tuple(table["cuda"]["sm"])}) if "cuda" in table else None
    read = {"name": name, "python": python, "pythons": tuple(table["pythons"]), "engines": engines, "cuda": cuda}
    read["isa"] = tuple(table["isa"]) if "isa" in table else None
    return Profile(**{**table, **read})


def _running_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
