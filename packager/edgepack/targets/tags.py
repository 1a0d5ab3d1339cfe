"""What a target is to packaging tools: the wheel tags that load on it, and what environment markers see there.

pip and `packaging` answer both for the interpreter that runs them. Nothing here asks that interpreter, but for the
platforms of a profile that is the builder's own kind of machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.markers import default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from edgepack.targets.profiles import Profile

# PEP 600: names that some minor versions of glibc 2 had before, and the oldest that wheels of a machine are built for.
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST = {"x86_64": 5, "i686": 5}
_OLDEST_ELSEWHERE = 17


def interpreter(profile: Profile) -> str:
    """CPython's tag on the target, as "cp311"."""
    return "cp" + profile.python.replace(".", "")


def platforms(profile: Profile) -> list[str]:
    """Platform tags that load on the target, the best fit first."""
    return list(_manylinux(profile.machine, profile.glibc)) if profile.glibc else list(platform_tags())


def ranked(profile: Profile) -> dict[Tag, int]:
    """Wheel tags that load on the target, with their rank: the lowest is the best fit."""
    major, minor = (int(part) for part in profile.python.split("."))
    known = platforms(profile)
    ordered = [*cpython_tags((major, minor), abis=[interpreter(profile)], platforms=known)]
    ordered += compatible_tags((major, minor), interpreter(profile), known)
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def rank(wheel: str, tags: dict[Tag, int]) -> int | None:
    """How well the wheel of that file name fits (lower is better); None where it does not, or is not a wheel."""
    try:
        fits = parse_wheel_filename(wheel)[3]
    except InvalidWheelFilename:
        return None
    return min((tags[tag] for tag in fits if tag in tags), default=None)


def misfit(wheel: str, profile: Profile) -> str:
    """Why the wheel of that file name does not load on the target, in words; empty where it does.

    Raises:
        InvalidWheelFilename: it is not the name of a wheel.
    """
    found = parse_wheel_filename(wheel)[3]
    tags = ranked(profile)
    if any(tag in tags for tag in found):
        return ""
    known = platforms(profile)
    here = sorted({tag.platform for tag in found})
    if not any(platform in ("any", *known) for platform in here):
        most = f"; {known[0]} is the newest that loads there" if profile.glibc else ""
        return f"it is for {', '.join(here)}, and the target is {profile.system} on {profile.machine}{most}"
    pythons = ", ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in found}))
    return f"it is for {pythons}, and the target runs CPython {profile.python} ({interpreter(profile)})"


def marker_environment(profile: Profile) -> dict[str, str]:
    """What environment markers see on the target, whatever runs here."""
    environment = {key: str(value) for key, value in default_environment().items()}
    return {
        **environment,
        "implementation_name": "cpython",
        "implementation_version": profile.python + ".0",
        "os_name": "posix",
        "platform_machine": profile.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": profile.system,
        "platform_version": "",
        "python_full_version": profile.python + ".0",
        "python_version": profile.python,
        "sys_platform": profile.system.lower(),
    }


def _manylinux(machine: str, glibc: str) -> Iterator[str]:
    newest = int(glibc.split(".")[1])
    for minor in range(newest, _OLDEST.get(machine, _OLDEST_ELSEWHERE) - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLDER_NAMES:
            yield f"{_OLDER_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"
