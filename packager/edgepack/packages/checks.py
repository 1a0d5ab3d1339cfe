"""Content checks of a bundle's packages and binaries, before anything is written.

A binary that does not run on the target is an error. Other findings are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.utils import InvalidWheelFilename

from edgepack.artifacts import Checks, ContentCheck
from edgepack.binaries import dynamic_loader, elf, fit, gpu_code
from edgepack.binaries import glibc as symbols
from edgepack.binaries.elf import Binary
from edgepack.binaries.gpu_code import Code
from edgepack.errors import StageFailedError
from edgepack.messages import message
from edgepack.targets import tags
from edgepack.targets.profiles import Profile

_EXTENSION: Final = re.compile(r"\.(cpython-[^./]+|abi3)\.so\Z")


def check_wheel(file_name: str, profile: Profile) -> None:
    """Whether one of a wheel's tags is for the target's machine and glibc.

    Raises:
        StageFailedError: none is, or the name is not that of a wheel.
    """
    try:
        why = tags.misfit(file_name, profile)
    except InvalidWheelFilename as error:
        raise StageFailedError(f"{file_name} is not the name of a wheel", why=str(error)) from error
    if why:
        raise _unfit(file_name, profile, why)


def check_no_extension(name: str, profile: Profile) -> None:
    """Whether a file (a path in the site folder) is no extension module: those are for one version of Python.

    Raises:
        StageFailedError: it is one.
    """
    if _EXTENSION.search(name):
        raise _unfit(name, profile, "it is an extension module, for one version of Python, and a bundle fits all")


def _unfit(name: str, profile: Profile, why: str) -> StageFailedError:
    return StageFailedError(
        f"{name} does not run on target {profile.name}",
        why=why,
        fix=f"give a wheel for {profile.machine}",
    )


@dataclass(frozen=True)
class Carried:
    """One unpacked wheel: its file name, its files in the site folder (POSIX paths), its licence texts.

    One that `is_given`, by path or by the recipe's requirements, stands in no lock of edgepack. Modules in C for one
    version of Python are allowed where it `has_extensions`.
    """

    package: str  # name and version
    wheel: str
    files: tuple[str, ...]
    licenses: tuple[str, ...]
    is_given: bool = False
    has_extensions: bool = False


def run(site: Path, wheels: Sequence[Carried], profile: Profile) -> fit.SystemRequirements:
    """Check everything that lies in `site` (the unpacked wheels) against the target.

    Raises:
        StageFailedError: naming the file and what of it does not fit.
    """
    for wheel in wheels:
        check_wheel(wheel.wheel, profile)
    notes = [line for wheel in wheels for line in _check_licenses(wheel)]
    names = [name for wheel in wheels for name in wheel.files]
    for name in (name for wheel in wheels if not wheel.has_extensions for name in wheel.files):
        check_no_extension(name, profile)
    binaries = {name: elf.read(site / name) for name in sorted(names) if elf.is_elf(site / name)}
    carried = {Path(name).name for name in names}
    notes += fit.check_binaries(binaries, carried, profile)
    gpu_packages = _gpu_code(site, wheels, binaries)
    notes += gpu_code.check(gpu_packages, profile)
    glibc, libstdcxx = symbols.oldest_glibc(binaries.values()), symbols.oldest_libstdcxx(binaries.values(), carried)
    passed = (
        ContentCheck(message("content.wheels"), str(len(wheels))),
        ContentCheck(message("content.licences"), str(sum(len(wheel.licenses) for wheel in wheels))),
        ContentCheck("ELF", str(len(binaries))),
        ContentCheck("glibc", glibc, profile.glibc and f"<= {profile.glibc}"),
        ContentCheck("libstdc++", libstdcxx or message("content.none"), profile.glibcxx and f"<= {profile.glibcxx}"),
        *_gpu_checks(gpu_packages, profile),
    )
    return fit.SystemRequirements(
        glibc, dynamic_loader.needed(binaries, carried), Checks(passed, tuple(notes)), len(binaries)
    )


def _check_licenses(wheel: Carried) -> Iterator[str]:
    """Check that each wheel has a licence text; for one that the user gives, that is the user's task."""
    if all(path.endswith(".json") for path in wheel.licenses):
        if wheel.is_given:
            yield message("note.no_licence", name=wheel.package)
            return
        raise StageFailedError(
            f"{wheel.package} comes without a licence text",
            why="anyone who hands on a bundle has to hand on the licences of what is in it",
            fix="lock another wheel of it",
        )


def _gpu_code(site: Path, wheels: Iterable[Carried], binaries: Mapping[str, Binary]) -> dict[str, frozenset[Code]]:
    """GPU code in the libraries of each package; packages without GPU code are omitted."""
    found = {}
    for wheel in wheels:
        own = [gpu_code.read_library(site / name, name, binaries[name]) for name in wheel.files if name in binaries]
        if any(own):
            found[wheel.package] = frozenset().union(*own)
    return found


def _gpu_checks(gpu_packages: Mapping[str, frozenset[Code]], profile: Profile) -> Iterator[ContentCheck]:
    sm = [f"sm_{sm}" for sm in profile.cuda.sm] if profile.cuda is not None else []
    allowed = message("content.for", sm=sm) if sm else message("content.for_no_gpu")
    for package, codes in gpu_packages.items():
        yield ContentCheck(message("content.gpu_code"), gpu_code.describe_codes(codes), allowed, package)
