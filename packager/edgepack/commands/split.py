"""`edgepack split`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import common


@click.command()
@common.speaking
@common.bundle_argument
@click.option("--size", type=common.SIZE, required=True, help="Of a part at most: 60M, 1G, or bytes (M: 1,048,576).")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write; BUNDLE's name with .split, beside it, unless given.",
)
def command(bundle: Path, size: int, output: Path | None) -> None:
    """Cut BUNDLE into parts, for a stick or a link that takes no large files; sign it before.

    The folder holds a small file with the bundle's name and the parts beside it. Copied into one folder, the small one
    is used as the bundle would be: `python3 FILE install` reads the parts where they lie.
    """
    from edgepack.targets.splitting import SUFFIX, split

    folder = output or bundle.with_name(bundle.name + SUFFIX)
    for path in split(bundle, folder, size):
        click.echo(f"{path}  {path.stat().st_size:,} bytes")
