"""`edgepack plan`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.speaking
@options.recipe_argument
@options.settings_option
@options.workspace_option
@options.options
@options.part_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def command(
    context: click.Context,
    recipe: Path,
    settings: tuple[str, ...],
    workspace: Path | None,
    drawn: options.Drawn,
    until: str | None,
    start: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show what a build of RECIPE would do: every resolved value, and which stages are cached or would run.

    Defaults are dimmed, or marked without colours. It reads the data, trains nothing and writes nothing.
    """
    loaded, build_context = options.load(recipe, settings, drawn)
    from edgepack.console import tables
    from edgepack.pipeline import plan
    from edgepack.pipeline.workspace import Workspace

    place = Workspace(options.workspace_of(recipe, workspace))
    made = plan.make(loaded, place, options.build_options(until, start, force), build_context)
    if as_json:
        stages = [dataclasses.asdict(stage) for stage in made.stages]
        values = [dataclasses.asdict(value) for value in made.values]
        document = {"values": values, "stages": stages, "downloads": dataclasses.asdict(made.downloads)}
        options.say_json(document, default=str)
        return
    console = options.console(context)
    for note in loaded.notes:
        console.line(note)
    console.show(tables.plan(made, live=console.is_live))
