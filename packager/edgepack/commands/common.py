"""What several commands share: their arguments and options, and how they load a recipe and speak."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgepack.console import Console
    from edgepack.recipe.model import Recipe

recipe_argument = click.argument("recipe", type=click.Path(dir_okay=False, path_type=Path))
existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)
bundle_argument = click.argument("bundle", type=existing_file)
workspace_option = click.option(
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".edgepack"),
    show_default=True,
    help="Stage results, taken up again by the next build.",
)
settings_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a value of the recipe, as `--set teacher.epochs=5`; wins over the file. Repeatable.",
)


def load(recipe: Path, settings: Sequence[str] = ()) -> Recipe:
    """The recipe of a file with `settings` (of `settings_option`) put in, checked against this version's targets."""
    from edgepack.recipe.load import load_recipe
    from edgepack.targets.profiles import load_profiles

    return load_recipe(recipe, load_profiles().keys(), settings)


def console(context: click.Context) -> Console:
    """Where this command speaks; `--quiet` before the command's name makes it print results and errors only."""
    from edgepack.console import Console

    return Console(quiet=bool((context.obj or {}).get("quiet")))
