"""Whether wheels and their extension modules are for the target's Python: by wheel tags and by file names.

CPython loads an extension module only under one of a few names: with its own ABI in it, with `.abi3`, or without
either. What the module without either was built for its name does not tell; the tag of its wheel does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from packaging.utils import InvalidWheelFilename

from edgepack.errors import StageFailedError
from edgepack.targets import tags
from edgepack.targets.profiles import Profile

_EXTENSION: Final = re.compile(r"\.cpython-([0-9]+[a-z]*)-([^.]+)\.so\Z")
_STABLE: Final = ".abi3.so"


def check_wheel(file_name: str, profile: Profile) -> None:
    """Whether one of a wheel's tags is for the target's Python, machine and glibc.

    Raises:
        StageFailedError: none is, or the name is not that of a wheel.
    """
    try:
        why = tags.misfit(file_name, profile)
    except InvalidWheelFilename as error:
        raise StageFailedError(f"{file_name} is not the name of a wheel", why=str(error)) from error
    if why:
        raise _unfit(file_name, profile, why)


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


def _unfit(name: str, profile: Profile, why: str) -> StageFailedError:
    return StageFailedError(
        f"{name} does not run on target {profile.name}",
        why=why,
        fix=f"give a wheel for CPython {profile.python} on {profile.machine}",
    )
