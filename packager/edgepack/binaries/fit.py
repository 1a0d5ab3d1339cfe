"""Whether binaries run on a target, and what they need of its system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from edgepack.artifacts import Checks
from edgepack.binaries import dynamic_loader, glibc
from edgepack.binaries.elf import Binary
from edgepack.errors import StageFailedError
from edgepack.targets import machines
from edgepack.targets.profiles import Profile
from edgepack_runtime.device.doctor import version_numbers

_BITS: Final = 64  # word size of all supported machines
_SYSTEMS: Final = ("ELFOSABI_SYSV", "ELFOSABI_LINUX")  # EI_OSABI that linkers write on Linux and its loader accepts


@dataclass(frozen=True)
class SystemRequirements:
    """What the binaries of a bundle, or of a part of it, need of a device.

    Attributes:
        glibc: the lowest version that has every symbol they use.
        libraries: shared libraries that the system must have besides glibc.
        checks: the content checks that they passed.
        binaries: number of ELF files.
    """

    glibc: str
    libraries: tuple[str, ...]
    checks: Checks
    binaries: int


def together(parts: Iterable[SystemRequirements]) -> SystemRequirements:
    """What a device must have for all of them."""
    every = list(parts)
    return SystemRequirements(
        max((needs.glibc for needs in every), key=version_numbers),
        tuple(sorted({library for needs in every for library in needs.libraries})),
        Checks(
            tuple(check for needs in every for check in needs.checks.passed),
            tuple(dict.fromkeys(note for needs in every for note in needs.checks.notes)),
        ),
        sum(needs.binaries for needs in every),
    )


def check_binaries(binaries: Mapping[str, Binary], carried: set[str], profile: Profile) -> list[str]:
    """Check that binaries run on the target; return notes.

    Args:
        binaries: by path.
        carried: names of all files that the bundle brings with them.

    Raises:
        StageFailedError: names the file and what does not fit.
    """
    notes = [line for name, binary in binaries.items() for line in _check_one(name, binary, carried, profile)]
    return [*notes, *dynamic_loader.check_needed(binaries, carried, profile)]


def check_machine(name: str, binary: Binary, profile: Profile) -> None:
    """Check that one file is for the target's machine.

    Raises:
        StageFailedError: machine, word size, byte order or operating system differ.
    """
    if not binary.little_endian or binary.system not in _SYSTEMS:
        order = "little" if binary.little_endian else "big"
        raise StageFailedError(
            f"{name} does not run on target {profile.name}",
            why=f"it is {order}-endian and for {binary.system}, the target is little-endian and runs Linux",
            fix="lock a wheel that was built for the target",
        )
    wanted = (machines.BY_NAME[profile.machine].elf, _BITS)
    if (binary.machine, binary.bits) != wanted:
        target = "the target is {} with {}".format(*wanted)
        raise StageFailedError(
            f"{name} does not run on target {profile.name}",
            why=f"it is {binary.machine} with {binary.bits} bits, {target}",
            fix="lock a wheel that was built for the target",
        )


def _check_one(name: str, binary: Binary, carried: set[str], profile: Profile) -> Iterator[str]:
    check_machine(name, binary, profile)
    glibc.check_glibc(name, binary, profile)
    glibc.check_gcc_libraries(name, binary, carried, profile)
    yield from dynamic_loader.check_search_paths(name, binary)
    yield from dynamic_loader.check_flags(name, binary)
