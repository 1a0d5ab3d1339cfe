"""`edgepack diff`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@click.argument("before", type=options.existing_file)
@click.argument("after", type=options.existing_file)
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON, with the paths of all files.")
@click.pass_context
def command(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Show the differences between bundles BEFORE and AFTER: sizes, gates, ledger, versions, files. Verifies both."""
    from edgepack.bundle import inspect
    from edgepack.console import build_tables

    found = inspect.compare(inspect.inspect(before), inspect.inspect(after))
    if as_json:
        options.say_json(found)
    else:
        console = options.console(context)
        console.show(build_tables.comparison(found, live=console.is_terminal))
