"""`edgepack gate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgepack.commands import common, supplies


@click.command()
@common.speaking
@common.bundle_argument
@supplies.pythons_option
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@click.pass_context
def command(context: click.Context, bundle: Path, pythons: tuple[Path, ...], as_json: bool) -> None:
    """Gate BUNDLE on this machine, with the Python of its target; exits 0, 6 (failed) or 7 (inconclusive).

    Exits 9 where this machine cannot run it: then it is gated on its device, by its own verb `gate`.
    """
    from edgepack.stages.gate import gate_here

    console = common.console(context)
    exit_code, receipt = gate_here(bundle, console, pythons)
    if as_json:
        click.echo(json.dumps(receipt, ensure_ascii=False))
    else:
        console.gate(receipt)
    context.exit(exit_code)
