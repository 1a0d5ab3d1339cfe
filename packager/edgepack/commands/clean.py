"""`edgepack clean`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@options.workspace_option
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    metavar="RECIPE",
    help="Keep only the results that a build of RECIPE would reuse. Repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Remove every stage result.")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
def command(workspace: Path | None, keep: tuple[Path, ...], everything: bool, dry_run: bool) -> None:
    """Remove stage results.

    Without options it removes results that no build can reuse: of failed gates and of interrupted stages, but not
    checkpoints of trainings. The results are those beside the RECIPE of --keep, or in this folder. It refuses to run
    during a build. Bundles in dist/ are never removed.
    """
    if keep and everything:
        raise click.UsageError("--keep and --all exclude each other")
    from edgepack.build import plan
    from edgepack.build.workspace import Workspace
    from edgepack.util.text import mib

    place = Workspace(options.workspace_of(keep[0] if keep else None, workspace))
    kept: set[Path] | None = None
    if keep:
        plans = [plan.make(loaded, place, context=found) for loaded, found in map(options.load, keep)]
        kept = {stage.folder for made in plans for stage in made.stages if stage.folder is not None}
    if not place.root.is_dir():
        options.print_line(
            f"there is no {place.root}: nothing to remove; results lie beside their recipe (--workspace)"
        )
        return
    freed = 0
    with place.in_use(alone=True):
        for left in list(place.leftovers(everything=everything, kept=kept)):
            freed += left.size_bytes
            if not dry_run:
                place.discard(left)
            verb = "would remove" if dry_run else "removed"
            options.print_line(f"{verb} {left.path} ({left.kind}, {mib(left.size_bytes)})")
    options.print_line(f"{mib(freed)} {'would be ' if dry_run else ''}freed")
