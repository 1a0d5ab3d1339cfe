"""Target profiles: the description of one, from which `profile_file` reads them, and what a recipe chooses.

A profile with `glibc` can be built on any machine. `local` has none: it is the machine that builds.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from edgepack.errors import RecipeInvalidError, TargetUnreachableError
from edgepack.recipe.messages import did_you_mean, listed
from edgepack_runtime.bundle.manifest import BUNDLED, HOST, MACHINES, OWN
from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.device.info import VECTOR_FLAGS, libc
from edgepack_runtime.schema.fields import Document, Problem, field

ONNXRUNTIME: Final = "onnxruntime"
ONNXRUNTIME_GPU: Final = "onnxruntime-gpu"
ONNXRUNTIMES: Final = frozenset({ONNXRUNTIME, ONNXRUNTIME_GPU})  # wheels with its library; a bundle carries one

SYSTEM: Final = "system"  # CUDA's libraries are the device's
_GLIBC: Final = 'write a release of glibc 2, as "2.35"'
_GLIBCXX: Final = 'write a symbol version of libstdc++, as "3.4.30"'


@dataclass(frozen=True)
class Cuda(Document):
    """CUDA on a target. Here and in `Profile`, a key with a `fix`, which says what to write, is one of the file."""

    version: str = field(pattern=r"[0-9]+\.[0-9]+", fix='write a release of CUDA, as "12.6"')
    # Architectures of the GPUs.
    sm: tuple[str, ...] = field(values={"pattern": "[0-9]{2,3}"}, fix='write a list of architectures, as ["87"]')
    # Whether its libraries travel.
    libraries: str = field(
        default=BUNDLED,
        one_of=(BUNDLED, SYSTEM),
        fix='write "bundled", or "system" for a device that has CUDA and cuDNN',
    )

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if given.get("sm") == []:
            yield Problem(("sm",), "is empty")


@dataclass(frozen=True)
class Profile(Document):
    """One target. `machines` are values of `platform.machine()`.

    Its model runs on the CPU; with `cuda` on the GPU.
    """

    name: str
    summary: str = field(pattern=r".{1,500}", fix="write a text of 500 characters at most")
    machines: tuple[str, ...] = field(values={"one_of": MACHINES}, fix='write a list of "x86_64" and "aarch64"')
    # BUNDLED, HOST: a Python >= 3.8 of the device, or, as a recipe chooses, OWN.
    interpreter: str = field(
        default=BUNDLED,
        one_of=(BUNDLED, HOST),
        fix='write "bundled", or "host" for a device with a Python 3.8 or newer',
    )
    # Whether ONNX Runtime's wheel is not on the package index, and is given by path.
    by_path: bool = field(default=False, fix="write true or false")
    # Release of the target's glibc; empty: that of the building machine, checked on the device only.
    glibc: str = field(default="", pattern=r"2\.[0-9]{1,3}", fix=_GLIBC)  # a tag of wheels names each
    # Newest GLIBCXX symbol version of its libstdc++; empty as for `glibc`.
    glibcxx: str = field(default="", pattern=r"[0-9]+\.[0-9]+\.[0-9]+", fix=_GLIBCXX)
    cuda: Cuda | None = field(default=None, fix="write a table with its `version` and `sm`")
    # JetPack's major version on a Jetson.
    jetpack: str = field(default="", pattern="[0-9]?", fix='write the major version, as "6"')
    # Flags of all its CPUs, as in /proc/cpuinfo; None: unknown.
    isa: tuple[str, ...] | None = field(
        default=None,
        values={"pattern": "[A-Za-z0-9_.]+"},
        fix='write a list of flags in words of /proc/cpuinfo, as ["avx2", "avx512_vnni"]',
    )
    is_own: bool = False  # from the user's file

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        own = f"`{self.name}`"
        if given.get("machines") == []:
            yield Problem(("machines",), "is empty")
        for word in self.isa or ():
            if word not in VECTOR_FLAGS:
                fix = did_you_mean(word, VECTOR_FLAGS, f"take it out; known are {listed(VECTOR_FLAGS)}")
                yield Problem(("isa",), f"`isa` in {own}: {word!r:.60} is not a flag that edgepack looks at", fix)
        for key, fix in (("glibc", _GLIBC), ("glibcxx", _GLIBCXX)):
            if key not in given:
                yield Problem((), f"{own} lacks `{key}`, and carries no C library", fix)
        if self.interpreter == BUNDLED and self.cuda is not None:
            fix = 'write `interpreter = "host"`: the driver is built for the C library of its system'
            yield Problem(("interpreter",), f"{own} has a GPU and would carry an interpreter", fix)
        if self.by_path and self.cuda is None:
            # The package index has ONNX Runtime for every CPU; without `cuda` nobody would look for code for the GPU.
            what = '`version`, as "12.6", and its architectures, as `sm = ["87"]`'
            fix = f"add a table `[{self.name}.cuda]` with its {what}"
            yield Problem(("by_path",), f"{own} takes a wheel for a GPU by path, and lacks `cuda`", fix)

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
