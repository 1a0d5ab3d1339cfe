"""Descriptions of target profiles: one line each, or every fact of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.bundle import local_wheels, wheels
from edgepack.errors import EnvironmentUnfitError
from edgepack.results import NotRunHere
from edgepack.targets import local, tags
from edgepack.targets.local import Interpreter
from edgepack.targets.profiles import Profile


@dataclass(frozen=True)
class Short:
    """One profile in a list. `wheels` is the number of locked wheels; None without a lock."""

    name: str
    summary: str
    python: str
    glibc: str
    provider: str  # "CPU" or "CUDA"
    wheels: int | None
    by_path: str  # the package that the user must provide as a local wheel
    runs_here: bool
    own: bool  # in the user's file


def in_short(profile: Profile) -> Short:
    """The list entry of `profile`."""
    return Short(
        profile.name,
        profile.summary,
        profile.python,
        profile.glibc,
        profile.provider.removesuffix("ExecutionProvider"),
        _count(profile),
        profile.package if profile.by_path else "",
        not isinstance(_runner(profile, ()), NotRunHere),
        profile.locks is not None,
    )


def in_full(profile: Profile, pythons: Sequence[Path] = ()) -> dict[str, Any]:
    """Every fact in JSON types, by its name in a profile file."""
    facts = dataclasses.asdict(profile)
    locks = facts.pop("locks")
    runner = _runner(profile, pythons)
    return {
        **facts,
        "provider": profile.provider,
        "locks_of_its_own": None if locks is None else str(locks),
        "newest_platform_tag": tags.platforms(profile)[0],
        "packages": _packages(profile),
        "runs_here": f"no: {runner.why}" if isinstance(runner, NotRunHere) else f"with CPython {runner.version}",
    }


def _packages(profile: Profile) -> list[str] | str:
    """The packages of its bundles, as `onnxruntime==1.31.1`; or why they are unknown."""
    try:
        locked = _locked(profile, serve=bool(profile.serve_lock))
    except EnvironmentUnfitError as error:
        return f"{error.what}: {error.fix}"
    by_path = [f"{profile.package} (given by path)"] if profile.by_path else []
    return [*by_path, *(f"{package.name}=={package.version}" for package in locked)]


def _count(profile: Profile) -> int | None:
    try:
        return len(_locked(profile))
    except EnvironmentUnfitError:
        return None


def _locked(profile: Profile, *, serve: bool = False) -> list[wheels.Locked]:
    left_out = local_wheels.replaced((), profile)
    return [one for one in wheels.locked_for(profile, serve=serve) if one.name not in left_out]


def _runner(profile: Profile, pythons: Sequence[Path]) -> Interpreter | NotRunHere:
    return local.runner(profile, profile.provider, jetpack=profile.jetpack, pythons=pythons)
