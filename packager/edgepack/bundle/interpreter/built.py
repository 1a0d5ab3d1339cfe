"""An assembled interpreter, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.binaries.fit import Needs
from edgepack.bundle.interpreter.debian import DebianPackage


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
    needs: Needs | None = None
