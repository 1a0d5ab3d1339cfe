"""`edgepack report`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@click.argument("reports", type=options.ExistingFile(dir_okay=True), nargs=-1, required=True, metavar="REPORT...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def command(context: click.Context, reports: tuple[Path, ...], as_json: bool) -> None:
    """Compare builds: score, latency and size of each, and the changes between them.

    REPORT is a .report.json from the dist folder of a build, a bundle beside it, or such a folder.
    """
    from edgepack.console import build_tables

    found = build_tables.read(reports)
    if as_json:
        options.say_json(found.as_json())
    else:
        console = options.console(context)
        console.show(build_tables.tables(found, live=console.is_terminal, width=console.width))
