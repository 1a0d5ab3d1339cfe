"""The content checks of what a bundle carries: every one of them before anything is written.

What does not run on the target is an error. What runs and is worth knowing is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.content import Check, Checks
from edgepack.errors import StageFailedError
from edgepack.targets import abi, elf, gpu, loading, symbols
from edgepack.targets.elf import Binary
from edgepack.targets.fatbin import Code
from edgepack.targets.profiles import Profile

_SYSTEMS: Final = ("ELFOSABI_SYSV", "ELFOSABI_LINUX")  # what linkers write on Linux, and its loader takes


@dataclass(frozen=True)
class Carried:
    """One unpacked wheel: its file name, its files in the site folder (POSIX paths), its licence texts.

    One that `is_given` by path stands in no lock.
    """

    package: str  # name and version
    wheel: str
    files: tuple[str, ...]
    licenses: tuple[str, ...]
    is_given: bool = False


@dataclass(frozen=True)
class Needs:
    """What the binaries need of the device: the oldest glibc, and libraries besides glibc."""

    glibc: str
    libraries: tuple[str, ...]
    checks: Checks
    binaries: int


def run(site: Path, wheels: Sequence[Carried], profile: Profile) -> Needs:
    """Check everything that lies in `site` (the unpacked wheels) against the target.

    Raises:
        StageFailedError: naming the file and what of it does not fit.
    """
    for wheel in wheels:
        abi.check_wheel(wheel.wheel, profile)
    told = [line for wheel in wheels for line in _check_licenses(wheel)]
    names = [name for wheel in wheels for name in wheel.files]
    for name in names:
        abi.check_extension(name, profile)
    binaries = {name: elf.read(site / name) for name in sorted(names) if elf.is_elf(site / name)}
    carried = {Path(name).name for name in names}
    told += [line for name, binary in binaries.items() for line in _fits(name, binary, carried, profile)]
    told += loading.check_needed(binaries, carried, profile)
    held = _gpu_code(site, wheels, binaries)
    told += gpu.check(held, profile)
    glibc, libstdcxx = symbols.oldest_glibc(binaries.values()), symbols.oldest_libstdcxx(binaries.values(), carried)
    passed = (
        Check("wheels", str(len(wheels))),
        Check("licences", str(sum(len(wheel.licenses) for wheel in wheels))),
        Check("modules", str(sum(abi.extensions(names)))),
        Check("ELF", str(len(binaries))),
        Check("glibc", glibc, profile.glibc and f"<= {profile.glibc}"),
        Check("libstdc++", libstdcxx or "none", profile.glibcxx and f"<= {profile.glibcxx}"),
        *_gpu_checks(held, profile),
    )
    return Needs(glibc, loading.needed(binaries, carried), Checks(passed, tuple(told)), len(binaries))


def check_machine(name: str, binary: Binary, profile: Profile) -> None:
    """Whether one file is for the target's machine at all.

    Raises:
        StageFailedError: machine, word size, byte order or operating system differ.
    """
    if not binary.little_endian or binary.system not in _SYSTEMS:
        order = "little" if binary.little_endian else "big"
        raise StageFailedError(
            f"{name} does not run on target {profile.name}",
            why=f"it is {order}-endian and for {binary.system}, the target is little-endian and runs {profile.system}",
            fix="lock a wheel that was built for the target",
        )
    if (binary.machine, binary.bits) != (profile.elf_machine, profile.elf_bits):
        target = f"the target is {profile.elf_machine} with {profile.elf_bits}"
        raise StageFailedError(
            f"{name} does not run on target {profile.name}",
            why=f"it is {binary.machine} with {binary.bits} bits, {target}",
            fix="lock a wheel that was built for the target",
        )


def _fits(name: str, binary: Binary, carried: set[str], profile: Profile) -> Iterator[str]:
    check_machine(name, binary, profile)
    symbols.check_glibc(name, binary, profile)
    symbols.check_gcc_libraries(name, binary, carried, profile)
    yield from loading.check_search_paths(name, binary)
    yield from loading.check_flags(name, binary)


def _check_licenses(wheel: Carried) -> Iterator[str]:
    """Whether there is a text; of a wheel that somebody gave by path that is for them to see to."""
    if all(path.endswith(".json") for path in wheel.licenses):
        if wheel.is_given:
            yield f"{wheel.package} comes without a licence text"
            return
        raise StageFailedError(
            f"{wheel.package} comes without a licence text",
            why="whoever hands on a bundle has to hand on the licences of what is in it",
            fix="put its text into targets/licenses and name that as `license_text` in targets/slim.toml",
        )


def _gpu_code(site: Path, wheels: Iterable[Carried], binaries: Mapping[str, Binary]) -> dict[str, frozenset[Code]]:
    """Package -> what its libraries hold code for, of those that hold any."""
    found = {}
    for wheel in wheels:
        own = [gpu.code_of(site / name, name, binaries[name]) for name in wheel.files if name in binaries]
        if any(own):
            found[wheel.package] = frozenset().union(*own)
    return found


def _gpu_checks(held: Mapping[str, frozenset[Code]], profile: Profile) -> Iterator[Check]:
    allowed = "for no GPU" if profile.cuda is None else "for " + ", ".join(f"sm_{sm}" for sm in profile.cuda.sm)
    for package, codes in held.items():
        yield Check("GPU code", gpu.told(codes), allowed, package)
