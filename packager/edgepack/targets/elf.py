"""What a binary needs of the device, read from its content: file names and wheel tags are only claims."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile

_MAGIC = b"\x7fELF"
_MOST = 1000  # entries of a table; a damaged count would keep pyelftools reading for hours
_GLIBC = "GLIBC_"
_NUMBERED = re.compile(r"GLIBC_([0-9]+(?:\.[0-9]+)+)\Z")
# Markers of loader features are no numbers; the release that brought each one is.
_MARKERS = {"GLIBC_ABI_DT_RELR": "2.36"}
ANY_GLIBC = "2.0"  # the first release of glibc 2: what a folder without binaries needs
# Libraries that are parts of glibc itself; its version says all about them.
_GLIBC_PARTS = ("ld-linux", "libc.so", "libdl.so", "libm.so", "libpthread.so", "librt.so")


@dataclass(frozen=True)
class Binary:
    """One ELF file, the symbol versions it needs (as "GLIBC_2.28") and the shared libraries (DT_NEEDED)."""

    machine: str
    bits: int
    symbols: frozenset[str]
    libraries: frozenset[str]


def is_elf(path: Path) -> bool:
    """Whether a file begins like an ELF file, whatever it is called."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read(path: Path) -> Binary:
    """Machine, word size, symbol versions and libraries of one ELF file.

    Raises:
        StageFailedError: the file is damaged, or has no section table to read the needs from.
    """
    symbols: set[str] = set()
    libraries: set[str] = set()
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            if not 0 < elf.num_sections() <= _MOST:
                raise ELFError(f"its section table lists {elf.num_sections()} sections")
            for section in elf.iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    symbols.update(_versions(section))
                elif isinstance(section, DynamicSection):
                    libraries.update(str(vars(tag)["needed"]) for tag in section.iter_tags("DT_NEEDED"))
            return Binary(elf["e_machine"], elf.elfclass, frozenset(symbols), frozenset(libraries))
    except Exception as error:  # on damaged files pyelftools raises whatever its parsing came to
        raise StageFailedError(
            f"{path.name} cannot be read as an ELF file",
            why=str(error),
            fix="delete the wheel cache and build again",
        ) from error


def _versions(section: GNUVerNeedSection) -> Iterator[str]:
    """Names of all symbol versions in .gnu.version_r."""
    if section.num_versions() > _MOST:
        raise ELFError(f"it lists symbols of {section.num_versions()} libraries")
    for need, versions in section.iter_versions():
        if need["vn_cnt"] > _MOST:
            raise ELFError(f"it lists {need['vn_cnt']} symbol versions of one library")
        yield from (version.name for version in versions)


def check(path: Path, binary: Binary, profile: Profile) -> None:
    """Whether `binary` loads on the profile's machine at all.

    Raises:
        StageFailedError: naming the file, when machine or word size differ, or when it needs symbols of glibc
            that belong to no release we know (GLIBC_PRIVATE changes with every one).
    """
    if (binary.machine, binary.bits) != (profile.elf_machine, profile.elf_bits):
        why = f"it is {binary.machine} with {binary.bits} bits, the target is {profile.elf_machine} with "
        raise _unfit(path, profile, why + f"{profile.elf_bits}")
    unknown = sorted(s for s in binary.symbols if s.startswith(_GLIBC) and _release(s) is None)
    if unknown:
        raise _unfit(path, profile, f"it needs {', '.join(unknown)}, which no release of glibc promises")


def oldest_glibc(binaries: Iterable[Binary]) -> str:
    """The oldest glibc, as "2.28", that has every symbol version the binaries need."""
    releases = (_release(symbol) for binary in binaries for symbol in binary.symbols)
    return max((release for release in releases if release), default=ANY_GLIBC, key=_numbers)


def from_system(binaries: Iterable[Binary], carried: Container[str]) -> tuple[str, ...]:
    """Shared libraries that the device must have besides glibc: needed, and not `carried` (file names)."""
    needed = {library for binary in binaries for library in binary.libraries}
    return tuple(sorted(n for n in needed if n not in carried and not n.startswith(_GLIBC_PARTS)))


def _release(symbol: str) -> str | None:
    """The glibc release that brought a symbol version; null when it is not glibc's, or unknown."""
    match = _NUMBERED.match(symbol)
    return match.group(1) if match else _MARKERS.get(symbol)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _unfit(path: Path, profile: Profile, why: str) -> StageFailedError:
    return StageFailedError(
        f"{path.name} does not run on target {profile.name}",
        why=why,
        fix="lock a wheel that was built for the target",
    )
