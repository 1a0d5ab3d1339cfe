"""What a recipe alone tells about wheels by path: which fit, and which target still needs one.

`--wheel` may add some to a build, so that one is missing is a warning here, and an error there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from edgepack.recipe.findings import Finding
from edgepack.recipe.model import Recipe
from edgepack.targets import given, wheels
from edgepack.targets.profiles import Profile
from edgepack.targets.supply import Supply


def check(recipe: Recipe, known: Mapping[str, Profile], file: Path) -> Iterator[Finding]:
    """Warnings about targets that need a wheel by path which the recipe does not name.

    Args:
        known: profiles by name, those of the recipe's targets among them.
        file: what the findings name.

    Raises:
        UsageError, EnvironmentUnfitError: a wheel that the recipe names cannot go into the bundle it is for.
    """
    supply = Supply(known, given={target: tuple(map(Path, files)) for target, files in recipe.wheels.items()})
    for target in recipe.targets:
        mine = {given.package_of(wheel) for wheel in supply.given.get(target, ())}
        profile = known[target]
        if profile.by_path and profile.package not in mine:
            lacking = given.not_given(profile)
            yield Finding("warning", file, None, f"{lacking.what}, and the recipe names none", lacking.fix)
        elif mine:
            wheels.wanted(profile, supply, serve=recipe.serve)
