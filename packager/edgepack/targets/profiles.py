"""Target profiles, from `profiles.toml` and from a user's file in the same form.

A profile with `glibc` can be built on any machine. A profile without it has the C library of the building machine, and
can only be built on a machine of that kind: `check_host`.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgepack.errors import EnvironmentUnfitError, TargetUnreachableError
from edgepack.targets import package_data, profile_file
from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.device.info import libc

LOCKS_FOLDER = "edgepack-locks"  # beside a user's file of profiles
_HOST_PYTHON = "host"


@dataclass(frozen=True)
class Cuda:
    """CUDA on a target: its release, and the architectures of the GPUs, such as "87"."""

    version: str
    sm: tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """One target. `system` and `machine` are values of `platform`; `python` is the CPython ABI, such as "3.11".

    Its model runs on the CPU; with `cuda` on the GPU.
    """

    name: str
    summary: str
    system: str
    machine: str
    libc: str
    python: str
    pythons: tuple[str, ...]  # Python versions with wheels in the lock
    elf_machine: str  # e_machine of every binary in the bundle, by its name in the ELF standard
    elf_bits: int
    lock: str  # file in `locks/`: the wheels of every bundle
    by_path: bool = False  # ONNX Runtime's wheel is not on the package index, and is given by path
    serve_lock: str = ""  # file in `locks/` with the wheels of `serve`; empty if there are none
    glibc: str = ""  # release of the target's glibc; empty: that of the building machine, checked on the device only
    glibcxx: str = ""  # newest GLIBCXX symbol version of its libstdc++; empty as for `glibc`
    cuda: Cuda | None = None
    jetpack: str = ""  # JetPack's major version on a Jetson
    isa: tuple[str, ...] | None = None  # flags of all its CPUs, as in /proc/cpuinfo; None: unknown
    locks: Path | None = None  # folder with locks; None: those of this package

    @property
    def provider(self) -> str:
        """ONNX Runtime's execution provider that must be active."""
        return CPU if self.cuda is None else CUDA

    @property
    def package(self) -> str:
        """The wheel that has ONNX Runtime with that provider."""
        return "onnxruntime" if self.cuda is None else "onnxruntime-gpu"


@dataclass(frozen=True)
class Host:
    """This machine in the terms of a profile."""

    system: str
    machine: str
    libc: str
    implementation: str
    python: str
    libc_version: str = ""


def this_host() -> Host:
    """The machine and interpreter that run this process."""
    name, version = libc()
    return Host(
        system=platform.system(),
        machine=platform.machine(),
        libc=name,
        implementation=platform.python_implementation(),
        python=_running_python(),
        libc_version=version,
    )


def load_profiles(file: Path | None = None) -> dict[str, Profile]:
    """The profiles of this version and those of the user's `file`, by name, sorted; `python = "host"` is resolved.

    Raises:
        RecipeInvalidError: the user's file cannot be read, or is invalid.
    """
    own = {name: _profile(name, table) for name, table in package_data.tables("profiles.toml").items()}
    if file is not None:
        folder = file.absolute().parent / LOCKS_FOLDER
        theirs = {name: _profile(name, table) for name, table in profile_file.read(file, own).items()}
        own |= {name: replace(profile, locks=folder) for name, profile in theirs.items()}
    return dict(sorted(own.items()))


def check_host(profile: Profile, host: Host | None = None) -> None:
    """Check that `host` (by default this machine) is of the kind of a profile without `glibc`.

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
            fix="name a target with a C library and a Python of its own: `edgepack targets list`",
        )
    if host.implementation != "CPython" or host.python not in profile.pythons:
        raise EnvironmentUnfitError(
            f"target {profile.name} has no wheels for {host.implementation} {host.python}",
            why=f"its lock holds wheels for CPython {', '.join(profile.pythons)}",
            fix=f"run edgepack on CPython {profile.pythons[-1]}",
        )


def _profile(name: str, table: dict[str, Any]) -> Profile:
    python = _running_python() if table["python"] == _HOST_PYTHON else table["python"]
    cuda = table.get("cuda")
    read = {
        "name": name,
        "python": python,
        "pythons": tuple(table.get("pythons", (python,))),
        "cuda": Cuda(**{**cuda, "sm": tuple(cuda["sm"])}) if cuda else None,
        "isa": tuple(table["isa"]) if table.get("isa") is not None else None,
    }
    return Profile(**{**table, **read})


def _running_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
