"""`edgepack sign`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.speaking
@options.bundle_argument
@click.option(
    "--key",
    type=options.existing_file,
    required=True,
    help="SSH key: a private key, or the .pub file of one that an agent or a piece of hardware holds.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the signed bundle there, and leave BUNDLE as it is.",
)
def command(bundle: Path, key: Path, output: Path | None) -> None:
    """Sign BUNDLE with an SSH key; a signature that it has is replaced, and every other byte stays.

    ssh-keygen signs, and asks for a passphrase or a touch where the key wants one. A damaged bundle is refused.
    """
    from edgepack.bundle import signing

    out = output or bundle
    signed = signing.sign(bundle, key, out)
    click.echo(f"{out}: signed by {signed.fingerprint}")
