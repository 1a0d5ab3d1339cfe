"""Profiles for people: one line each, or every fact of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.errors import EnvironmentUnfitError
from edgepack.outcome import NotRunHere
from edgepack.targets import here, tags, wheels
from edgepack.targets.interpreters import Interpreter
from edgepack.targets.profiles import Profile


@dataclass(frozen=True)
class Short:
    """One profile in a list. `wheels` counts what is locked for its first engine; None: there is no lock."""

    name: str
    summary: str
    python: str
    glibc: str
    engines: tuple[str, ...]
    wheels: int | None
    by_path: str  # the package that has to be given by path
    runs_here: bool
    own: bool  # of the user's file


def in_short(profile: Profile) -> Short:
    """What a list tells of `profile`."""
    engine = next(iter(profile.engines.values()))
    return Short(
        profile.name,
        profile.summary,
        profile.python,
        profile.glibc,
        tuple(f"{name} ({one.provider.removesuffix('ExecutionProvider')})" for name, one in profile.engines.items()),
        _count(profile),
        engine.package if engine.local else "",
        not isinstance(_runner(profile, ()), NotRunHere),
        profile.locks is not None,
    )


def in_full(profile: Profile, pythons: Sequence[Path] = ()) -> dict[str, Any]:
    """Every fact as plain JSON values, by what it is called in a file of profiles."""
    facts = dataclasses.asdict(profile)
    locks = facts.pop("locks")
    runner = _runner(profile, pythons)
    return {
        **facts,
        "engines": {name: dataclasses.asdict(engine) for name, engine in profile.engines.items()},
        "locks_of_its_own": None if locks is None else str(locks),
        "newest_platform_tag": tags.platforms(profile)[0],
        "packages": {name: _packages(profile, name) for name in profile.engines},
        "runs_here": f"no: {runner.why}" if isinstance(runner, NotRunHere) else f"with CPython {runner.version}",
    }


def _packages(profile: Profile, engine: str) -> list[str] | str:
    """What bundles for one of the engines carry, as `numpy==2.2.6`; or why that is not known."""
    try:
        locked = wheels.locked_for(profile, engine, serve=bool(profile.serve_lock))
    except EnvironmentUnfitError as error:
        return f"{error.what}: {error.fix}"
    of_engine = profile.engines[engine]
    left = [one for one in locked if not (of_engine.local and one.name == engine)]
    given = [f"{of_engine.package} (given by path)"] if of_engine.local else []
    return [*given, *(f"{package.name}=={package.version}" for package in left)]


def _count(profile: Profile) -> int | None:
    name, engine = next(iter(profile.engines.items()))
    try:
        return len([one for one in wheels.locked_for(profile, name) if not (engine.local and one.name == name)])
    except EnvironmentUnfitError:
        return None


def _runner(profile: Profile, pythons: Sequence[Path]) -> Interpreter | NotRunHere:
    provider = next(iter(profile.engines.values())).provider
    return here.runner(profile, provider, jetpack=profile.jetpack, pythons=pythons)
