"""`edgepack doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@options.workspace_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def command(context: click.Context, workspace: Path | None, as_json: bool) -> None:
    """Report what training can use on this machine (Paddle, driver, GPUs, cores, memory, disk) and its problems.

    Tests each GPU with a computation, which takes some seconds. Exits 4 if no training can run. A GPU that cannot be
    used is a warning, because `device: auto` and `device: cpu` train without it.
    """
    from edgepack.console import tables
    from edgepack.errors import EnvironmentUnfitError
    from edgepack.training import diagnosis

    report = diagnosis.examine(options.workspace_of(None, workspace))
    if as_json:
        options.say_json(report.document())
    else:
        console = options.console(context)
        console.show(tables.examination(report))
    errors = [problem for problem in report.problems if problem.severity == "error"]
    if errors:
        why = "; ".join(f"{problem.what} ({problem.why})" for problem in errors)
        raise EnvironmentUnfitError("training cannot run on this machine", why=why, fix=errors[0].fix)
