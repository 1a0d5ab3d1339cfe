"""Wheel tags that fit a target, whatever interpreter runs here.

Of ONNX Runtime's wheel only the library travels, which is the same for every Python: its wheels for one CPython are
locked, and one that is given by path may be for any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from packaging.markers import default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from edgepack.targets.machines import BY_NAME
from edgepack.targets.profiles import Profile

Python: TypeAlias = tuple[int, int]  # major and minor version
PYTHON: Python = (3, 11)
# Those of devices; the oldest is the oldest that runs a bundle. Markers are tried on each of them.
KNOWN_PYTHONS: tuple[Python, ...] = tuple((3, minor) for minor in range(8, 16))
# PEP 600: names that some minor versions of glibc 2 had before.
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def interpreter(python: Python = PYTHON) -> str:
    """The tag of a CPython; that one for which edgepack's wheels are locked, unless given."""
    return "cp{}{}".format(*python)


def platforms(profile: Profile) -> list[str]:
    """Platform tags that load on the target, the best fit first."""
    return list(_manylinux(profile.machine, profile.glibc)) if profile.glibc else list(platform_tags())


def ranked(profile: Profile, python: Python | None = PYTHON) -> dict[Tag, int]:
    """Wheel tags that fit the target, with their rank: the lowest is the best fit.

    Args:
        profile: the target.
        python: version of its CPython; None for wheels that each of `KNOWN_PYTHONS` takes.
    """
    known = platforms(profile)
    if python is None:
        ordered = [*compatible_tags(KNOWN_PYTHONS[0], platforms=known)]  # tags of the oldest fit the newer ones, too
    else:
        ordered = [*cpython_tags(python, abis=[interpreter(python)], platforms=known)]
        ordered += compatible_tags(python, interpreter(python), known)
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}  # of a tag that occurs twice, the first


def rank(wheel: str, tags: dict[Tag, int]) -> int | None:
    """How well the wheel of that file name fits (lower is better); None where it does not, or is not a wheel."""
    try:
        fits = parse_wheel_filename(wheel)[3]
    except InvalidWheelFilename:
        return None
    return min((tags[tag] for tag in fits if tag in tags), default=None)


def misfit(wheel: str, profile: Profile) -> str:
    """Why the libraries in the wheel of that file name do not load on the target, in words; empty where they do.

    Raises:
        InvalidWheelFilename: it is not the name of a wheel.
    """
    here = sorted({tag.platform for tag in parse_wheel_filename(wheel)[3]})
    known = platforms(profile)
    if any(platform in ("any", *known) for platform in here):
        return ""
    most = f"; {known[0]} is the newest that loads there" if profile.glibc else ""
    return f"it is for {', '.join(here)}, and the target is Linux on {profile.machine}{most}"


def marker_environment(profile: Profile, python: Python = PYTHON) -> dict[str, str]:
    """What environment markers see on the target with this Python, whatever runs here."""
    environment = {key: str(value) for key, value in default_environment().items()}
    version = "{}.{}".format(*python)
    return {
        **environment,
        "implementation_name": "cpython",
        "implementation_version": version + ".0",
        "os_name": "posix",
        "platform_machine": profile.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": version + ".0",
        "python_version": version,
        "sys_platform": "linux",
    }


def _manylinux(machine: str, glibc: str) -> Iterator[str]:
    newest = int(glibc.split(".")[1])
    for minor in range(newest, BY_NAME[machine].oldest_glibc - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLDER_NAMES:
            yield f"{_OLDER_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"
