"""An assembled interpreter, where it comes from, and the end of its search for a standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.binaries.fit import SystemRequirements
from edgepack.interpreter.debian import DebianPackage

_EMPTY_ZIP: Final = b"PK\5\6" + bytes(18)


@dataclass(frozen=True)
class OwnBuild:
    """A CPython that the user gives as an archive."""

    version: str
    archive: str  # file name
    sha256: str


@dataclass(frozen=True)
class Interpreter:
    """An interpreter for one machine, in `folder` as it lies in `MACHINE/python/` of a release.

    `licenses` are the texts by their place in the bundle's `licenses/`. `needs` is None with a C library of its own.
    """

    machine: str
    version: str
    folder: Path
    origins: tuple[DebianPackage | OwnBuild, ...]
    licenses: Mapping[str, Path]
    needs: SystemRequirements | None = None


def confine_library_search(folder: Path, python: str) -> None:
    """Make sure that an interpreter in `folder` finds its own standard library, `lib/PYTHON/`, as `python3.11`.

    Whatever its options, CPython (Modules/getpath.py) looks in every folder above its program for `lib/python311.zip`,
    then for `lib/python3.11/`, and for `lib/python3.11/lib-dynload/`. A release may be unpacked into /tmp, where
    another user can make them. So it finds the first and the last in its own folder, though they may be empty.
    """
    (folder / "lib" / f"{python.replace('.', '')}.zip").write_bytes(_EMPTY_ZIP)
    modules = folder / "lib" / python / "lib-dynload"
    modules.mkdir(exist_ok=True)
    if not any(modules.iterdir()):
        (modules / "README.txt").write_text("All modules in C are part of the program.\n", encoding="ascii")
