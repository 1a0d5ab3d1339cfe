"""`edgepack inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@options.bundle_argument
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, with the digest of every file.")
@click.pass_context
def command(context: click.Context, bundle: Path, as_json: bool) -> None:
    """Show the contents of BUNDLE: target, sizes by part, gates, ledger, versions. Verifies every byte first."""
    from edgepack.bundle import inspect
    from edgepack.console import build_tables

    found = inspect.inspect(bundle)
    if as_json:
        options.say_json(found)
    else:
        console = options.console(context)
        console.show(build_tables.inspection(found, live=console.is_terminal))
