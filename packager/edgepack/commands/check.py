"""`edgepack check`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import common


@click.command()
@common.recipe_argument
@click.pass_context
def command(context: click.Context, recipe: Path) -> None:
    """Check RECIPE and the data it names; print every finding as file:line, reason, fix."""
    from edgepack.datasets.load import load_splits

    loaded = common.load(recipe)
    splits = load_splits(loaded.data)
    common.console(context).findings(list(splits.warnings))
    counts = ", ".join(f"{len(rows)} {split}" for split, rows in splits.rows.items())
    click.echo(f"{recipe}: valid ({counts} rows)")
