"""`edgepack verify`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import common


@click.command()
@common.speaking
@common.bundle_argument
def command(bundle: Path) -> None:
    """Check every byte of BUNDLE against its manifest; exits 8 naming the damaged file."""
    from edgepack.targets.verified import verified

    manifest = verified(bundle)
    click.echo(
        f"{bundle}: {manifest.name} {manifest.version} for {manifest.target.profile}, "
        f"{len(manifest.files)} files, intact"
    )
