"""Machine and requirements of an ELF file, by its content: file names and wheel tags are only claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.constants import P_FLAGS
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from edgepack.errors import StageFailedError

_MAGIC = b"\x7fELF"
_MOST = 1000  # entries of a table; a damaged count would keep pyelftools reading for hours
_MOST_ENTRIES = 100_000  # of .dynamic, which has an end marker unless it is damaged
_TEXTREL = 0x4  # DF_TEXTREL of DT_FLAGS
# Sections for GPU code of nvcc and its linker; the second has relocatable device code.
_GPU_SECTIONS = (".nv_fatbin", "__nv_relfatbin")


@dataclass(frozen=True)
class Need:
    """A symbol version, such as "GLIBC_2.28", and the library that must have it."""

    library: str
    version: str


@dataclass(frozen=True)
class Extent:
    """Offset and size of a section in its file, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Binary:
    """Machine and requirements of one ELF file."""

    machine: str
    bits: int
    needs: frozenset[Need]
    libraries: frozenset[str]  # DT_NEEDED
    search_paths: tuple[str, ...] = ()  # the entries of DT_RPATH and DT_RUNPATH
    executable_stack: bool = False  # PT_GNU_STACK asks for one
    text_relocations: bool = False  # text relocations
    gpu_code: tuple[Extent, ...] = ()
    little_endian: bool = True  # a big-endian ARM64 is EM_AARCH64 too
    system: str = "ELFOSABI_SYSV"  # operating system

    @property
    def symbols(self) -> frozenset[str]:
        """The symbol versions that this file requires of all libraries."""
        return frozenset(need.version for need in self.needs)


def is_elf(path: Path) -> bool:
    """Whether a file begins like an ELF file."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read(path: Path) -> Binary:
    """Read one ELF file.

    Raises:
        StageFailedError: the file is damaged, or has no section table.
    """
    try:
        with path.open("rb") as stream:
            return _read(ELFFile(stream), path.stat().st_size)
    except Exception as error:  # pyelftools raises various errors on damaged files
        raise StageFailedError(
            f"{path.name} cannot be read as an ELF file",
            why=str(error),
            fix="delete the wheel cache and build again",
        ) from error


def _read(elf: ELFFile, file_bytes: int) -> Binary:
    if not 0 < elf.num_sections() <= _MOST:
        raise ELFError(f"its section table lists {elf.num_sections()} sections")
    if elf.num_segments() > _MOST:
        raise ELFError(f"it lists {elf.num_segments()} segments")
    needs: set[Need] = set()
    entries: list[Any] = []
    gpu_code = []
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            needs.update(_versions(section))
        elif isinstance(section, DynamicSection):
            entries += _entries(section)
        elif section.name in _GPU_SECTIONS and section["sh_type"] != "SHT_NOBITS":
            gpu_code.append(_extent(section, file_bytes))
    _require_sections(elf, entries, needs)
    return Binary(
        machine=elf["e_machine"],
        bits=elf.elfclass,
        needs=frozenset(needs),
        libraries=frozenset(_texts(entries, "needed")),
        search_paths=tuple(_search_paths(entries)),
        executable_stack=any(
            segment["p_type"] == "PT_GNU_STACK" and segment["p_flags"] & P_FLAGS.PF_X for segment in elf.iter_segments()
        ),
        text_relocations=any(_writes_code(entry) for entry in entries),
        gpu_code=tuple(gpu_code),
        little_endian=elf.little_endian,
        system=str(elf["e_ident"]["EI_OSABI"]),
    )


def _require_sections(elf: ELFFile, entries: list[Any], needs: set[Need]) -> None:
    """Check that the sections exist: the loader reads the dynamic segment, this module the sections."""
    if not entries and any(segment["p_type"] == "PT_DYNAMIC" for segment in elf.iter_segments()):
        raise ELFError("it is linked dynamically, and has no section with its libraries")
    if not needs and any(entry.entry.d_tag == "DT_VERNEED" for entry in entries):
        raise ELFError("it needs versions of symbols, and has no section that names them")


def _versions(section: GNUVerNeedSection) -> Iterator[Need]:
    """Names of all symbol versions in .gnu.version_r, each with its library."""
    if section.num_versions() > _MOST:
        raise ELFError(f"it lists symbols of {section.num_versions()} libraries")
    for need, versions in section.iter_versions():
        if need["vn_cnt"] > _MOST:
            raise ELFError(f"it lists {need['vn_cnt']} symbol versions of one library")
        yield from (Need(str(need.name), str(version.name)) for version in versions)


def _entries(section: DynamicSection) -> Iterator[Any]:
    for number, entry in enumerate(section.iter_tags()):
        if number > _MOST_ENTRIES:
            raise ELFError("its dynamic section has no end")
        yield entry


def _texts(entries: list[Any], *kinds: str) -> Iterator[str]:
    """The texts of dynamic entries, which pyelftools stores as attributes of these names."""
    for kind in kinds:
        yield from (str(vars(entry)[kind]) for entry in entries if kind in vars(entry))


def _search_paths(entries: list[Any]) -> Iterator[str]:
    """The search paths. The loader ignores an empty text; an empty entry beside others is the current folder."""
    for text in _texts(entries, "rpath", "runpath"):
        yield from text.split(":") if text else ()


def _writes_code(entry: Any) -> bool:
    tag, value = entry.entry.d_tag, entry.entry.d_val
    return tag == "DT_TEXTREL" or (tag == "DT_FLAGS" and bool(value & _TEXTREL))


def _extent(section: Any, file_bytes: int) -> Extent:
    extent = Extent(section["sh_offset"], section["sh_size"])
    if extent.offset + extent.size > file_bytes:
        raise ELFError(f"its section {section.name} ends behind the file")
    return extent
