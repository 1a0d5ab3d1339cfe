"""`edgepack verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.commands import options

if TYPE_CHECKING:
    from edgepack_runtime.install.trust import Proof


@click.command()
@options.verbosity_options
@options.bundle_argument
@click.option(
    "--signers",
    type=options.existing_file,
    metavar="FILE",
    help="Keys, one of which must have signed the bundle: OpenSSH's allowed_signers format, or a .pub file.",
)
def command(bundle: Path, signers: Path | None) -> None:
    """Check every byte of BUNDLE against its manifest, and its signature. Exits 8 and names the damage."""
    from edgepack.bundle import signing

    manifest, proof = signing.verify_signed(bundle, signers)
    options.print_line(
        f"{bundle}: {manifest.name} {manifest.version} for {manifest.target.profile}, "
        f"{len(manifest.files) + 1} files, intact"
    )
    options.print_line(_signed(proof))


def _signed(proof: Proof) -> str:
    if proof.proven:
        return f"signed by {proof.principals}, {proof.fingerprint}"
    if proof.signed:
        return f"signed by {proof.fingerprint}; --signers FILE checks whose key it is"
    return "not signed"
