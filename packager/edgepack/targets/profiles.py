"""Target profiles, from `profiles.toml` and from a user's file in the same form.

A profile with `glibc` can be built on any machine. `local` has none: it is the machine that builds.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.errors import RecipeInvalidError, TargetUnreachableError
from edgepack.targets import package_data, profile_file
from edgepack_runtime.bundle.manifest import BUNDLED, MACHINES, OWN
from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.device.info import libc

ONNXRUNTIME: Final = "onnxruntime"
ONNXRUNTIME_GPU: Final = "onnxruntime-gpu"
ONNXRUNTIMES: Final = frozenset({ONNXRUNTIME, ONNXRUNTIME_GPU})  # wheels with its library; a bundle carries one

SYSTEM: Final = "system"  # CUDA's libraries are the device's
# `e_machine` of the binaries for a machine, by its name in the ELF standard; all have 64 bits.
ELF_MACHINES: Final = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_HERE: Final = "host"  # in `machines`: that of the machine that builds


@dataclass(frozen=True)
class Cuda:
    """CUDA on a target: its release, the architectures of the GPUs, such as "87", and whether its libraries travel."""

    version: str
    sm: tuple[str, ...]
    libraries: str = BUNDLED  # or SYSTEM


@dataclass(frozen=True)
class Profile:
    """One target. `machines` are values of `platform.machine()`.

    Its model runs on the CPU; with `cuda` on the GPU.
    """

    name: str
    summary: str
    machines: tuple[str, ...]
    interpreter: str  # BUNDLED, OWN, or HOST: a Python >= 3.8 of the device
    by_path: bool = False  # ONNX Runtime's wheel is not on the package index, and is given by path
    glibc: str = ""  # release of the target's glibc; empty: that of the building machine, checked on the device only
    glibcxx: str = ""  # newest GLIBCXX symbol version of its libstdc++; empty as for `glibc`
    cuda: Cuda | None = None
    jetpack: str = ""  # JetPack's major version on a Jetson
    isa: tuple[str, ...] | None = None  # flags of all its CPUs, as in /proc/cpuinfo; None: unknown
    is_own: bool = False  # from the user's file

    @property
    def machine(self) -> str:
        """The machine of a profile that has one: see `on`."""
        [only] = self.machines
        return only

    def on(self, machine: str) -> Profile:
        """This profile for one of its machines."""
        return replace(self, machines=(machine,))

    @property
    def provider(self) -> str:
        """ONNX Runtime's execution provider that must be active."""
        return CPU if self.cuda is None else CUDA

    @property
    def package(self) -> str:
        """The wheel that has ONNX Runtime with that provider."""
        return ONNXRUNTIME if self.cuda is None else ONNXRUNTIME_GPU

    @property
    def lock(self) -> str:
        """File in `locks/` with the wheels that the model runs on."""
        if self.cuda is None or self.by_path:
            return "onnxruntime.txt"
        return f"onnxruntime-cuda{self.cuda.version.split('.')[0]}.txt"


def load_profiles(file: Path | None = None) -> dict[str, Profile]:
    """The profiles of this version and those of the user's `file`, by name, sorted.

    Raises:
        RecipeInvalidError: the user's file cannot be read, or is invalid.
    """
    own = {name: _profile(name, table) for name, table in package_data.tables("profiles.toml").items()}
    if file is not None:
        theirs = profile_file.read(file, own)
        own |= {name: replace(_profile(name, table), is_own=True) for name, table in theirs.items()}
    return dict(sorted(own.items()))


def chosen(
    profiles: Mapping[str, Profile], targets: tuple[str, ...], interpreter: str | None, cuda: str | None
) -> dict[str, Profile]:
    """`profiles`, with what a recipe chooses for its `targets`.

    Args:
        interpreter: BUNDLED, HOST, OWN, or null for that of each profile.
        cuda: BUNDLED, SYSTEM, or null for that of each profile.

    Raises:
        RecipeInvalidError: a target has no choice.
    """
    found = dict(profiles)
    for name in targets:
        profile = found.get(name)
        if profile is None:
            continue  # reported with the recipe
        if interpreter == BUNDLED and profile.cuda is not None:
            raise RecipeInvalidError(
                f"target {name} cannot carry an interpreter",
                why="the driver of its GPU is built for the C library of its system",
                fix="write `interpreter: host`, or leave it out",
            )
        if interpreter == OWN and profile.machines != (platform.machine(),):
            raise RecipeInvalidError(
                f"target {name} cannot carry an interpreter of your own from this machine",
                why=f"it compiles its modules itself, and runs on {platform.machine()} only",
                fix="name a target for one kind of machine, and build on such a machine",
            )
        if interpreter is not None:
            profile = replace(profile, interpreter=interpreter)
        if cuda is not None and profile.cuda is not None:
            profile = replace(profile, cuda=replace(profile.cuda, libraries=cuda))
        found[name] = profile
    return found


def check_host(profile: Profile) -> None:
    """Check that this machine is of the kind of a profile without `glibc`.

    Raises:
        TargetUnreachableError: it is not Linux with glibc on a machine that bundles exist for.
    """
    found = (platform.system(), platform.machine(), libc()[0])
    if found not in [("Linux", machine, "glibc") for machine in MACHINES]:
        raise TargetUnreachableError(
            f"target {profile.name} cannot be built on this machine",
            why=f"it is {' '.join(found)}; bundles run on Linux on {' or '.join(MACHINES)}",
            fix="name a target that can be built anywhere: `edgepack targets list`",
        )


def _profile(name: str, table: dict[str, Any]) -> Profile:
    cuda = table.get("cuda")
    read = {
        "name": name,
        "machines": tuple(platform.machine() if machine == _HERE else machine for machine in table["machines"]),
        "cuda": Cuda(**{**cuda, "sm": tuple(cuda["sm"])}) if cuda else None,
        "isa": tuple(table["isa"]) if table.get("isa") is not None else None,
    }
    return Profile(**{**table, **read})
