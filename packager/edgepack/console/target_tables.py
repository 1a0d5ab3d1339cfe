"""Descriptions of target profiles: one line each, or every fact of one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from edgepack.errors import EnvironmentUnfitError
from edgepack.interpreter import debian
from edgepack.packages import local_wheels, wheels
from edgepack.packages.requirements import Locked
from edgepack.results import NotRunHere
from edgepack.targets import tags, this_machine
from edgepack.targets.profiles import Profile
from edgepack_runtime.bundle.manifest import BUNDLED


@dataclass(frozen=True)
class Short:
    """One profile in a list. `wheels` is the number of locked wheels; None without a lock."""

    name: str
    summary: str
    interpreter: str
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
        profile.interpreter,
        "" if profile.interpreter == BUNDLED else profile.glibc,
        profile.provider.removesuffix("ExecutionProvider"),
        _count(profile),
        profile.package if profile.by_path else "",
        _lacking(profile) is None,
        profile.is_own,
    )


def in_full(profile: Profile) -> dict[str, Any]:
    """Every fact in JSON types, by its name in a profile file."""
    lacking = _lacking(profile)
    return {
        **dataclasses.asdict(profile),
        "provider": profile.provider,
        "newest_platform_tags": [tags.platforms(profile.on(machine))[0] for machine in profile.machines],
        "packages": _packages(profile),
        "runs_here": "yes" if lacking is None else f"no: {lacking.why}",
    }


def _packages(profile: Profile) -> list[str] | str:
    """The packages of its bundles, as `onnxruntime==1.31.1`; or why they are unknown."""
    try:
        locked = _locked(profile, serve=True)
        carried = [debian.locked(machine) for machine in profile.machines if profile.interpreter == BUNDLED]
    except EnvironmentUnfitError as error:
        return f"{error.what}: {error.fix}"
    by_path = [f"{profile.package} (given by path)"] if profile.by_path else []
    wheels_named = [f"{package.name}=={package.version}" for package in locked]
    return [*by_path, *wheels_named, *(f"{one.name} {one.version}" for packages in carried[:1] for one in packages)]


def _count(profile: Profile) -> int | None:
    try:
        return len(_locked(profile))
    except EnvironmentUnfitError:
        return None


def _locked(profile: Profile, *, serve: bool = False) -> list[Locked]:
    left_out = local_wheels.replaced((), profile)
    machine = profile.machines[0]
    return [one for one in wheels.locked_for(profile.on(machine), serve=serve) if one.name not in left_out]


def _lacking(profile: Profile) -> NotRunHere | None:
    return this_machine.lacking(
        profile.machines, profile.provider, profile.interpreter, libc_min=profile.glibc, jetpack=profile.jetpack
    )
