"""`edgepack gate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.commands import common, supplies
from edgepack.errors import EnvironmentUnfitError, UsageError

if TYPE_CHECKING:
    from edgepack.console import Console
    from edgepack.gates import Result

_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@common.speaking
@click.argument("bundles", type=common.existing_file, nargs=-1, metavar="FILE...")
@click.option(
    "--target",
    "targets",
    metavar="TARGET",
    multiple=True,
    help="`local`, or a device: ssh://[USER@]HOST[:PORT][/PREFIX]. Repeatable.  [default: local]",
)
@click.option("--installed", is_flag=True, help="Gate what is installed on the devices; of FILE, if one is given.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many devices at once.  [default: all]")
@click.option("--identity", type=common.existing_file, metavar="FILE", help="A key for ssh, as of `ssh -i`.")
@click.option("-o", "--ssh-option", "options", metavar="NAME=VALUE", multiple=True, help="As of `ssh -o`. Repeatable.")
@click.option("--remote-python", metavar="PATH", help="The Python to run with on devices.  [default: found on PATH]")
@click.option("--remote-cache", metavar="DIR", help="Where devices keep what is copied.  [default: ~/.cache]")
@click.option("--clean", is_flag=True, help="Leave nothing of what is copied on the devices.")
@click.option(
    "--receipts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep receipts in DIR/TARGET, for `edgepack receipts`.  [default: receipts/ beside FILE, of devices]",
)
@click.option("--junit", type=_file, metavar="FILE", help="Write the checks as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a summary; `-` is stdout.")
@supplies.pythons_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every receipt.")
@click.pass_context
def command(
    context: click.Context,
    bundles: tuple[Path, ...],
    targets: tuple[str, ...],
    installed: bool,
    jobs: int | None,
    identity: Path | None,
    options: tuple[str, ...],
    remote_python: str | None,
    remote_cache: str | None,
    clean: bool,
    receipts: Path | None,
    junit: Path | None,
    markdown: Path | None,
    pythons: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Gate each FILE on each --target: this machine, with the Python of its target, or devices over SSH.

    A device gets what it has not, of earlier copies and installed releases, runs the bundle's own `gate`, and its
    receipt comes back. It needs sshd and a Python; ssh's own configuration, agent and known hosts hold, and nothing
    is ever asked.

    Exits 0, 6 (failed) or 7 (inconclusive), and 9 where a target cannot be reached or is of another kind. Of
    several results the first of 8, 6, 1, 2, 5, 4, 9, 7, 0 that occurs.
    """
    from edgepack import gates, gating
    from edgepack.targets import address
    from edgepack.targets.ssh import Client

    to_stdout = markdown == Path("-")
    if to_stdout and as_json:
        raise UsageError("--json and --markdown - both go to stdout", fix="give --markdown a file")
    for file in (junit, None if to_stdout else markdown):
        if file is not None:
            _require_writable(file)
    console = common.console(context)
    asked = gating.Asked(
        bundles,
        tuple(address.parse(target) for target in targets or (address.LOCAL,)),
        Client(options, identity),
        installed,
        jobs or 0,
        receipts,
        pythons,
        remote_python,
        remote_cache,
        clean,
    )
    results = gating.run(asked, console)
    found = gates.document(results)
    _write(found, junit, None if to_stdout else markdown)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif to_stdout:
        from edgepack.report import markdown as page

        click.echo(page.render(found), nl=False)
    _show(results, console, tables=not as_json and not to_stdout, verbose=common.is_verbose(context))
    context.exit(found["exit_code"])


def _show(results: Sequence[Result], console: Console, *, tables: bool, verbose: bool) -> None:
    for result in results:
        if (error := result.error) is not None:
            if len(results) > 1:
                error.what = f"{result.target}: {error.what}"
            console.error(error, verbose=verbose)
        elif tables and result.receipt is not None:
            if len(results) > 1:
                console.closing([f"{result.target}:"])
            console.gate(result.receipt)


def _require_writable(file: Path) -> None:
    """A gate of minutes must not come before it shows that its result cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab"):
            pass
    except OSError as error:
        raise EnvironmentUnfitError(f"{file} cannot be written", why=error.strerror or str(error)) from error


def _write(found: dict[str, Any], junit: Path | None, markdown: Path | None) -> None:
    from edgepack.report import junit as xml
    from edgepack.report import markdown as page

    for file, text in ((junit, junit and xml.render_gates(found)), (markdown, markdown and page.render(found))):
        if file is not None:
            try:
                file.write_text(str(text), encoding="utf-8")
            except OSError as error:
                raise EnvironmentUnfitError(f"{file} cannot be written", why=error.strerror or str(error)) from error
