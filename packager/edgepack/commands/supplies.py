"""The options that say what a build draws on besides its recipe: profiles, wheels, and Pythons to gate with."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edgepack.commands import common

if TYPE_CHECKING:
    from edgepack.recipe.model import Recipe
    from edgepack.targets.profiles import Profile
    from edgepack.targets.supply import Supply

PROFILES_FILE: Final = "edgepack-targets.toml"
PROFILES_VARIABLE: Final = "EDGEPACK_PROFILES"

profiles_option = click.option(
    "--profiles",
    type=common.existing_file,
    help=f"Target profiles of your own; else ${PROFILES_VARIABLE}, else {PROFILES_FILE} beside the recipe.",
)
wheel_cache_option = click.option(
    "--wheel-cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which fetched wheels are kept.  [default: wheels/ in edgepack's cache]",
)
pythons_option = click.option(
    "--python",
    "pythons",
    type=common.existing_file,
    multiple=True,
    help="An interpreter to gate with, where its version is the target's. Repeatable.",
)
_OPTIONS: Final = (
    profiles_option,
    wheel_cache_option,
    click.option("--offline", is_flag=True, help="Fetch no wheels: what is not in the wheel cache is an error."),
    click.option(
        "--wheel",
        "wheels",
        type=common.existing_file,
        multiple=True,
        help="A wheel to carry instead of the locked one, for the targets that it fits. Repeatable.",
    ),
    pythons_option,
)


@dataclass(frozen=True)
class Drawn:
    """What these options say."""

    profiles: Path | None = None
    wheel_cache: Path | None = None
    offline: bool = False
    wheels: tuple[Path, ...] = ()
    pythons: tuple[Path, ...] = ()


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all of them; the command gets what they say as `drawn`."""

    @functools.wraps(command)
    def gathered(
        *inputs: Any,
        profiles: Path | None,
        wheel_cache: Path | None,
        offline: bool,
        wheels: tuple[Path, ...],
        pythons: tuple[Path, ...],
        **others: Any,
    ) -> Any:
        return command(*inputs, drawn=Drawn(profiles, wheel_cache, offline, wheels, pythons), **others)

    wrapped: Callable[..., Any] = gathered
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def known_profiles(profiles: Path | None, beside: Path) -> Mapping[str, Profile]:
    """The profiles of this version and those of the user's file: `profiles`, the variable's, or in folder `beside`."""
    from edgepack.targets.profiles import load_profiles

    return load_profiles(profiles_file(profiles, beside))


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Targets whose names begin with what was `typed`, for the shell."""
    from edgepack.errors import EdgepackError

    try:
        known = known_profiles(context.params.get("profiles"), Path.cwd())
    except EdgepackError:  # there is no place for it on a line that is being typed; the command itself tells it
        return []
    return [name for name in known if name.startswith(typed)]


def profiles_file(profiles: Path | None, beside: Path) -> Path | None:
    """The user's file of profiles, if there is one."""
    if profiles is not None:
        return profiles
    if told := os.environ.get(PROFILES_VARIABLE):
        return Path(told)
    found = beside / PROFILES_FILE
    return found if found.is_file() else None


def load_recipe(recipe: Path, settings: Sequence[str], profiles: Path | None) -> tuple[Recipe, Mapping[str, Profile]]:
    """The recipe of a file with `settings` put in, checked against the profiles that are known, and these."""
    from edgepack.recipe import load

    known = known_profiles(profiles, recipe.parent)
    return load.load_recipe(recipe, known, settings), known


def load(recipe: Path, settings: Sequence[str] = (), drawn: Drawn = Drawn()) -> tuple[Recipe, Supply]:
    """The recipe, and what its build draws on.

    Raises:
        RecipeInvalidError: something is wrong with the recipe, or with the user's profiles.
        UsageError: no target of the recipe takes a wheel that was given.
    """
    from edgepack.targets import given, wheels
    from edgepack.targets.supply import Supply, default_wheel_cache

    loaded, known = load_recipe(recipe, settings, drawn.profiles)
    shares = {target: tuple(map(Path, files)) for target, files in loaded.wheels.items()}
    if drawn.wheels:
        takers = {}
        for target in loaded.targets:
            locked = {one.name for one in wheels.locked_for(known[target], serve=loaded.serve)}
            takers[target] = (known[target], locked)
        for target, files in given.shared_out(drawn.wheels, takers).items():
            shares[target] = (*shares.get(target, ()), *files)
    cache = drawn.wheel_cache or default_wheel_cache()
    return loaded, Supply(known, cache.absolute(), drawn.offline, shares, drawn.pythons)
