"""What several commands share: their arguments and options, and how they load a recipe and speak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgepack.console import Console


def _said(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Note a flag that may stand before the command's name, after it, or in both places."""
    assert parameter.name is not None
    said: dict[str, bool] = context.ensure_object(dict)
    said[parameter.name] = said.get(parameter.name, False) or value


_EVERYWHERE = (
    click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_said, help="Print results and errors only."
    ),
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_said, help="Show the traceback of an error."
    ),
)


def speaking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--quiet` and `--verbose`, which every command takes, and the group itself; see `is_verbose`."""
    for option in reversed(_EVERYWHERE):
        command = option(command)
    return command


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


def console(context: click.Context) -> Console:
    """Where this command speaks; `--quiet` makes it print results and errors only."""
    from edgepack.console import Console

    return Console(quiet=context.ensure_object(dict).get("quiet", False))


def is_verbose(context: click.Context) -> bool:
    """Whether `--verbose` asks for the traceback of an error."""
    return bool(context.ensure_object(dict).get("verbose", False))
