"""`edgepack gate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgepack.commands import common


@click.command()
@common.speaking
@common.bundle_argument
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@click.pass_context
def command(context: click.Context, bundle: Path, as_json: bool) -> None:
    """Gate BUNDLE on this machine, in a process of its own; exits 0, 6 (failed) or 7 (inconclusive)."""
    from edgepack.stages.gate import gate_file

    console = common.console(context)
    exit_code, receipt = gate_file(bundle, console)
    if as_json:
        click.echo(json.dumps(receipt, ensure_ascii=False))
    else:
        console.gate(receipt)
    context.exit(exit_code)
