"""`edgepack receipts`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--signers",
    type=options.existing_file,
    metavar="FILE",
    help="Ignore receipts that none of these keys signed. OpenSSH's allowed_signers format, a line per device.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def command(context: click.Context, folder: Path, signers: Path | None, as_json: bool) -> None:
    """Summarise receipts of devices: release of each device, gate figures, drift.

    Copy PREFIX/receipts of each device into a folder below DIR that has the name of the device.
    """
    from edgepack.bundle import signing
    from edgepack.console import gate_tables
    from edgepack.gating import receipts_summary

    signer = None if signers is None else lambda file, raw: signing.signer_of(file, raw, signers)
    found = receipts_summary.summarize(folder, signer)
    if as_json:
        options.say_json(receipts_summary.document(found))
    else:
        console = options.console(context)
        console.show(gate_tables.fleet(found, live=console.is_terminal))
