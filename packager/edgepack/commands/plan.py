"""`edgepack plan`."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from edgepack.commands import options


@click.command()
@options.verbosity_options
@options.recipe_argument
@options.settings_option
@options.workspace_option
@options.source_options
@options.stage_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def command(
    context: click.Context,
    recipe: Path,
    settings: tuple[str, ...],
    workspace: Path | None,
    sources: options.SourceOptions,
    until: str | None,
    start: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show what a build of RECIPE would do: every resolved value, and which stages are cached or would run.

    A stage that would run has its reason, against the most similar earlier result, and its estimated time: from an
    earlier run or, for a first training, from a short measurement. Defaults are dimmed, or marked without colours. It
    reads the data, trains nothing and writes nothing.
    """
    loaded, build_context = options.load(recipe, settings, sources)
    from edgepack.build import plan
    from edgepack.build.workspace import Workspace
    from edgepack.console import tables

    results = Workspace(options.workspace_of(recipe, workspace))
    planned = plan.make(loaded, results, options.build_options(until, start, force), build_context)
    build_command = _build_command(context)
    if as_json:
        options.say_json(
            {
                "values": [dataclasses.asdict(value) for value in planned.values],
                "stages": [dataclasses.asdict(stage) for stage in planned.stages],
                "downloads": dataclasses.asdict(planned.downloads),
                "seconds": planned.seconds,
                "build": build_command,
            },
            default=str,
        )
        return
    console = options.console(context)
    for note in loaded.notes:
        console.line(note)
    console.findings(planned.downloads.findings(recipe))
    console.show(tables.plan(planned, results.root, build_command, live=console.is_terminal))


def _build_command(context: click.Context) -> str:
    """The command that builds what was planned: `build` with the options of this command line."""
    words = ["edgepack", "build"]
    for parameter in context.command.params:
        name = str(parameter.name)
        given: Any = context.params.get(name)  # without --help and its like, which end the program
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or given is None or name == "as_json":
            continue
        if isinstance(parameter, click.Argument):
            words.append(str(given))
        elif isinstance(parameter, click.Option):
            for one in given if parameter.multiple else (given,):
                words += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], str(one)]
    return shlex.join(words)
