"""`edgepack diff`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgepack.commands import common


@click.command()
@common.speaking
@click.argument("before", type=common.existing_file)
@click.argument("after", type=common.existing_file)
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON, with the paths of all files.")
@click.pass_context
def command(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Show how bundle AFTER differs from BEFORE: sizes, gates, ledger, versions, files. Checks both first."""
    from edgepack import bundle_tables, inspection

    found = inspection.compare(inspection.inspect(before), inspection.inspect(after))
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        console = common.console(context)
        console.show(bundle_tables.comparison(found, live=console.is_live))
