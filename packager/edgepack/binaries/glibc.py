"""Releases of glibc and of GCC's libraries that binaries need, compared with a target.

A library with versioned symbols names, in each program that uses it, the newest set of symbols that it took. A device
whose library is older refuses to load the file.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from edgepack.binaries.elf import Binary
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Profile

ANY_GLIBC: Final = "2.0"  # the first release of glibc 2: what a folder without binaries needs
_GLIBC: Final = "GLIBC_"
_RELEASE: Final = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9]+(?:\.[0-9]+)*)\Z")
# Markers of loader features are no numbers; the release that brought each one is.
_MARKERS: Final = {"GLIBC_ABI_DT_RELR": "2.36"}
# The newest GLIBCXX of a libstdc++ -> the newest CXXABI in it, and the release of GCC that it came with, which also
# numbers the symbols of libgcc_s ("ABI Policy and Guidelines" of libstdc++).
_GCC: Final[Mapping[str, tuple[str, str]]] = {
    "3.4.28": ("1.3.12", "10"),
    "3.4.29": ("1.3.13", "11"),
    "3.4.30": ("1.3.13", "12"),
    "3.4.31": ("1.3.14", "13"),
    "3.4.32": ("1.3.14", "13"),
    "3.4.33": ("1.3.15", "14"),
}


def oldest_glibc(binaries: Iterable[Binary]) -> str:
    """The oldest glibc, as "2.28", that has every symbol version the binaries need."""
    return _newest(binaries, "GLIBC") or ANY_GLIBC


def oldest_libstdcxx(binaries: Iterable[Binary], carried: Container[str]) -> str:
    """The newest GLIBCXX symbols, such as "3.4.22", that the binaries need of the device; empty if none."""
    return _newest(binaries, "GLIBCXX", carried)


def check_glibc(name: str, binary: Binary, profile: Profile) -> None:
    """Check the target's glibc for one file. Without a `profile.glibc` only the device checks it.

    Raises:
        StageFailedError: the file needs symbols of a newer or unknown release (GLIBC_PRIVATE changes with each).
    """
    unknown = sorted(s for s in binary.symbols if s.startswith(_GLIBC) and _release(s, "GLIBC") is None)
    if unknown:
        raise _unfit(name, profile, f"it needs {', '.join(unknown)}, which no release of glibc promises")
    if profile.glibc:
        _compare(name, binary.symbols, {"GLIBC": profile.glibc}, profile, f"glibc {profile.glibc}")


def check_gcc_libraries(name: str, binary: Binary, carried: Container[str], profile: Profile) -> None:
    """Check the target's libstdc++ and libgcc for one file.

    What is needed of a library that is `carried` (file names) the device need not have. Without a `profile.glibcxx`
    nobody compares.

    Raises:
        StageFailedError: it needs symbols of a newer GCC.
    """
    if profile.glibcxx:
        versions = {need.version for need in binary.needs if need.library not in carried}
        limits = limits_of(profile.glibcxx)
        newest = ", ".join(f"{kind}_{release}" for kind, release in limits.items())
        _compare(name, versions, limits, profile, f"libraries of GCC as far as {newest}")


def limits_of(glibcxx: str) -> dict[str, str]:
    """The newest symbols of each kind in GCC's libraries, where the newest GLIBCXX is this one.

    Of a release that is not in our table, those of the next older one count.
    """
    known = [(cxxabi, gcc) for release, (cxxabi, gcc) in _GCC.items() if _numbers(release) <= _numbers(glibcxx)]
    older = dict(zip(("CXXABI", "GCC"), known[-1], strict=True)) if known else {}
    return {"GLIBCXX": glibcxx, **older}


def _compare(name: str, versions: Iterable[str], limits: Mapping[str, str], profile: Profile, has: str) -> None:
    for kind, limit in limits.items():
        newest = max((release for v in versions if (release := _release(v, kind))), default="", key=_numbers)
        # A limit of "12" has all of release 12, as its "12.0.0".
        if newest and _numbers(newest)[: len(_numbers(limit))] > _numbers(limit):
            raise _unfit(name, profile, f"it needs {kind}_{newest}, and the target has {has}")


def _newest(binaries: Iterable[Binary], kind: str, carried: Container[str] = ()) -> str:
    needs = {need for binary in binaries for need in binary.needs if need.library not in carried}
    releases = (_release(need.version, kind) for need in needs)
    return max((release for release in releases if release), default="", key=_numbers)


def _release(symbol: str, kind: str) -> str | None:
    """The release of `kind` that introduced a symbol version; None for another kind, or an unknown version."""
    match = _RELEASE.match(symbol)
    if match:
        return match.group(2) if match.group(1) == kind else None
    return _MARKERS.get(symbol) if kind == "GLIBC" else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _unfit(name: str, profile: Profile, why: str) -> StageFailedError:
    return StageFailedError(
        f"{name} does not run on target {profile.name}",
        why=why,
        fix="lock a wheel that was built for the target, or for an older system",
    )
