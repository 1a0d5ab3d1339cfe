"""`edgepack report`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgepack.commands import common, files


@click.command()
@common.speaking
@click.argument("reports", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True, metavar="REPORT...")
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page with plots."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def command(context: click.Context, reports: tuple[Path, ...], page: Path | None, as_json: bool) -> None:
    """Compare builds over time: score, latency and size of each, and what changed from one to the next.

    REPORT is a NAME-VERSION.report.json that a build left in its dist folder, or such a folder.
    """
    from edgepack import compared, history

    if page is not None:
        files.require_apart([page], history.reports(reports))
        files.try_file(page)
    found = history.read(reports)
    if page is not None:
        from edgepack.report import over_time

        told = history.document(found)
        files.write(page, over_time.render(told["builds"], told["changes"]))
    if as_json:
        click.echo(json.dumps(history.document(found), ensure_ascii=False))
    else:
        console = common.console(context)
        console.show(compared.builds(found, live=console.is_live, width=console.width))
