"""Whether wheels and their extension modules are for the target's Python: by wheel tags and by file names.

CPython loads an extension module only under one of a few names: with its own ABI in it, with `.abi3`, or without
either. What the module without either was built for its name does not tell; the tag of its wheel does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile

_EXTENSION: Final = re.compile(r"\.cpython-([0-9]+[a-z]*)-([^.]+)\.so\Z")
_STABLE: Final = ".abi3.so"
_MANYLINUX: Final = re.compile(r"manylinux_([0-9]+)_([0-9]+)_(.+)\Z")
# Names from before the numbers: manylinux2014_x86_64 is manylinux_2_17_x86_64.
_OLD_MANYLINUX: Final = (("manylinux1_", (2, 5)), ("manylinux2010_", (2, 12)), ("manylinux2014_", (2, 17)))


def check_wheel(file_name: str, profile: Profile) -> None:
    """Whether one of a wheel's tags is for the target's Python, machine and glibc.

    Raises:
        StageFailedError: none is, or the name is not that of a wheel.
    """
    try:
        tags = parse_wheel_filename(file_name)[3]
    except InvalidWheelFilename as error:
        raise StageFailedError(f"{file_name} is not the name of a wheel", why=str(error)) from error
    pythons = _pythons(profile.python)
    if not any((tag.interpreter, tag.abi) in pythons for tag in tags):
        told = _told({f"{tag.interpreter}-{tag.abi}" for tag in tags})
        raise _unfit(file_name, profile, f"it is for {told}, and the target has CPython {profile.python}")
    if not any((tag.interpreter, tag.abi) in pythons and _fits(tag, profile) for tag in tags):
        has = f"{profile.libc} {profile.glibc} on {profile.machine}".replace("  ", " ")
        raise _unfit(file_name, profile, f"it is for {_told({t.platform for t in tags})}, and the target has {has}")


def check_extension(name: str, profile: Profile) -> None:
    """Whether the target's Python loads an extension module of this name (a path in the site folder).

    Raises:
        StageFailedError: it is one for another Python or another machine.
    """
    match = _EXTENSION.search(name)
    if match is None:
        return  # `.abi3.so`, or no ABI in the name
    version, platform = match.groups()
    if version != profile.python.replace(".", ""):
        raise _unfit(name, profile, f"it is for CPython {version}, and the target has {profile.python}")
    if platform.split("-")[0] != profile.machine:
        raise _unfit(name, profile, f"it is for {platform}, and the target is {profile.machine}")


def extensions(names: Iterable[str]) -> tuple[int, int]:
    """How many files have the ABI of one Python in their name, and how many have the stable one."""
    listed = list(names)
    return sum(bool(_EXTENSION.search(name)) for name in listed), sum(name.endswith(_STABLE) for name in listed)


def _pythons(python: str) -> set[tuple[str, str]]:
    """The pairs of interpreter and ABI tag that a CPython of this version installs."""
    major, minor = (int(part) for part in python.split("."))
    own = f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), abis=[own], platforms=["any"]),
        *compatible_tags((major, minor), own, ["any"]),
    ]
    return {(tag.interpreter, tag.abi) for tag in tags}


def _fits(tag: Tag, profile: Profile) -> bool:
    """Whether the platform of a tag is the target's; without a `profile.glibc` every release of that fits."""
    if tag.platform == "any":
        return True
    if not tag.platform.endswith(f"_{profile.machine}"):
        return False
    if tag.platform == f"{profile.system.lower()}_{profile.machine}":
        return True
    built_for = _manylinux(tag.platform)
    if built_for is None:
        return False
    return not profile.glibc or built_for <= tuple(int(part) for part in profile.glibc.split("."))


def _manylinux(platform: str) -> tuple[int, ...] | None:
    """The oldest glibc that a platform tag promises to run on; null where it is not about glibc."""
    match = _MANYLINUX.match(platform)
    if match:
        return int(match.group(1)), int(match.group(2))
    return next((release for name, release in _OLD_MANYLINUX if platform.startswith(name)), None)


def _told(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _unfit(name: str, profile: Profile, why: str) -> StageFailedError:
    return StageFailedError(
        f"{name} does not run on target {profile.name}",
        why=why,
        fix=f"give a wheel for CPython {profile.python} on {profile.machine}",
    )
