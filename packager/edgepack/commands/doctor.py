"""`edgepack doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.speaking
@options.workspace_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def command(context: click.Context, workspace: Path, as_json: bool) -> None:
    """Tell what training would run on here: Paddle, driver, GPUs, cores, memory, disk, and what is wrong with them.

    Tries each GPU with a first computation. Exits 4 when no training can run; a GPU that cannot be used is a warning,
    since `device: auto` and `device: cpu` go on without it. Takes some seconds.
    """
    from edgepack.console import build_tables
    from edgepack.errors import EnvironmentUnfitError
    from edgepack.training import doctor

    report = doctor.examine(workspace)
    if as_json:
        click.echo(json.dumps(report.document(), ensure_ascii=False))
    else:
        console = options.console(context)
        console.show(build_tables.examination(report))
    errors = [problem for problem in report.problems if problem.severity == "error"]
    if errors:
        why = "; ".join(f"{problem.what} ({problem.why})" for problem in errors)
        raise EnvironmentUnfitError("training cannot run here", why=why, fix=errors[0].fix)
