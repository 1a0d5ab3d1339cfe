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
    help="SSH key: a private key, or the .pub file of a key in an agent or a hardware token.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the signed bundle to this file, and keep BUNDLE unchanged.",
)
def command(bundle: Path, key: Path, output: Path | None) -> None:
    """Sign BUNDLE with an SSH key. An existing signature is replaced; every other byte stays.

    ssh-keygen signs, and asks for a passphrase or a touch if the key needs one. A damaged bundle is refused.
    """
    from edgepack.bundle import signing

    out = output or bundle
    signed = signing.sign(bundle, key, out)
    options.say(f"{out}: signed by {signed.fingerprint}")
