"""The options that ask for a part of a build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from edgepack.pipeline.options import STAGES, BuildOptions

_OPTIONS = (
    click.option("--until", type=click.Choice(STAGES), help="End after this stage."),
    click.option("--from", "start", type=click.Choice(STAGES), help="Make this stage and all after it again."),
    click.option("--force", is_flag=True, help="Make every stage again; the same as --from data."),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--until`, `--from` and `--force`; the command gets them as `until`, `start` and `force`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(until: str | None, start: str | None, force: bool, *, keep_going: bool = False) -> BuildOptions:
    """What the options ask for.

    Raises:
        click.UsageError: `--force` with `--from`, or a stage to begin with that comes after the one to end with.
    """
    if force and start is not None:
        raise click.UsageError("--force already makes every stage again; give it without --from")
    if until is not None and start is not None and STAGES.index(start) > STAGES.index(until):
        raise click.UsageError(f"--from {start} comes after --until {until}: nothing would be made again")
    return BuildOptions(until, STAGES[0] if force else start, keep_going)
