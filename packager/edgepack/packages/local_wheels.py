"""Wheels that are given by path, because no index has them: do they fit the target, and what do they stand for?

What is in them is checked where all wheels are, when they are unpacked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack.targets import tags
from edgepack.targets.profiles import ONNXRUNTIME, Profile

_NAMED = "give the file as it was built: a wheel's name tells what it is for"


def checked(wheels: Sequence[Path], profile: Profile, locked: Collection[str]) -> dict[str, Path]:
    """`wheels` by package name.

    Args:
        locked: names of the packages in the profile's lock.

    Raises:
        EnvironmentUnfitError: one is not there, not for this target, of a package that the bundle does not carry, or
            given twice; or one that the target needs by path is not among them.
    """
    found: dict[str, Path] = {}
    for wheel in wheels:
        name = package_of(wheel)
        why = refusal(wheel, profile, locked)
        if not why and name in found:
            twice = found[name].samefile(wheel)
            why = "it is given twice" if twice else f"{found[name].name} is one of {name} too"
        if why:
            raise EnvironmentUnfitError(
                f"the wheel {wheel.name} cannot go into a bundle for {profile.name}",
                why=why,
                fix="give the wheel that was built for this target, or take it out of `wheels`",
            )
        found[name] = wheel
    if profile.by_path and profile.package not in found:
        raise not_given(profile)
    return found


def refusal(wheel: Path, profile: Profile, locked: Collection[str]) -> str:
    """Why a bundle for `profile` does not take `wheel`, in words; empty where it does."""
    if not wheel.is_file():
        return f"there is no file {wheel}"
    name = package_of(wheel)
    if name not in {*locked, profile.package}:
        carried = ", ".join(sorted({*locked, profile.package}))
        return f"bundles for this target do not carry {name}; they carry {carried}"
    # Empty for each machine that it fits: one is enough.
    misfits = [tags.misfit(wheel.name, profile.on(machine)) for machine in profile.machines]
    return "" if "" in misfits else "; ".join(misfits)


def for_machine(wheels: Sequence[Path], profile: Profile, machine: str) -> list[Path]:
    """`wheels` of a target without those that are for another of its machines."""
    # A wheel that fits none of the machines stays: its check says why.
    others = [profile.on(other) for other in profile.machines if other != machine]
    return [
        wheel
        for wheel in wheels
        if not tags.misfit(wheel.name, profile.on(machine)) or all(tags.misfit(wheel.name, other) for other in others)
    ]


def replaced(found: Iterable[str], profile: Profile) -> frozenset[str]:
    """Packages of the lock that are left out: those `found` by path, and the CPU's where the GPU's is."""
    return frozenset({*found, *([ONNXRUNTIME] if profile.by_path else [])})  # the lock names that of the CPU


def package_of(wheel: Path) -> str:
    """Canonical name of the package that a wheel's file name tells.

    Raises:
        UsageError: it is not the name of a wheel.
    """
    try:
        return parse_wheel_filename(wheel.name)[0]
    except InvalidWheelFilename as error:
        raise UsageError(f"{wheel} is not a valid wheel file name", why=str(error), fix=_NAMED) from error


def shared_out(
    wheels: Sequence[Path], takers: Mapping[str, tuple[Profile, Collection[str]]]
) -> dict[str, tuple[Path, ...]]:
    """For each target those of `wheels` that it takes; each is taken by one at least.

    Args:
        takers: by target its profile, and the packages of its lock.

    Raises:
        UsageError: no target takes one of them, with the reason of each.
    """
    shares: dict[str, tuple[Path, ...]] = {}
    for wheel in wheels:
        refusals = {target: refusal(wheel, *taker) for target, taker in takers.items()}
        taking = [target for target, why in refusals.items() if not why]
        if not taking:
            raise UsageError(
                f"no target of the recipe takes the wheel {wheel.name}",
                why="; ".join(f"{target}: {why}" for target, why in refusals.items()),
                fix="give a wheel that was built for one of them",
            )
        for target in taking:
            shares[target] = (*shares.get(target, ()), wheel)
    return shares


def not_given(profile: Profile) -> EnvironmentUnfitError:
    """The error where nobody gave the wheel that has to be given by path."""
    return EnvironmentUnfitError(
        f"target {profile.name} needs a wheel of {profile.package} that is given by path",
        why="no package index has one with kernels for this device's GPU",
        fix=(
            f"write `wheels: {{{profile.name}: [FILE.whl]}}` in the recipe, or add `--wheel FILE.whl`; it is built for "
            f"{profile.machine}, as NVIDIA offers it for JetPack or as you build it; or write `linux-aarch64` for a "
            "bundle that runs on its CPU"
        ),
    )
