"""`edgepack sign`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
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

    ssh-keygen signs, and asks for a passphrase or a touch if the key needs one. A damaged bundle is refused. Signed in
    place, its line in a .sha256 file beside it is updated.
    """
    from edgepack.bundle import signing
    from edgepack.util import hashing
    from edgepack_runtime.util.fs import os_errors

    out = output or bundle
    signed = signing.sign(bundle, key, out)
    options.print_line(f"{out}: signed by {signed.fingerprint}")
    if output is None:
        with os_errors(f"the .sha256 files beside {bundle} cannot be updated"):
            for sums in hashing.update_sums(bundle):
                options.print_line(f"{sums}: updated the line of {bundle.name}")
