"""`edgepack gate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.commands import options
from edgepack.errors import EdgepackError, EnvironmentUnfitError, UsageError
from edgepack.util.text import json_text
from edgepack_runtime.util.streams import redirect_to_devnull

if TYPE_CHECKING:
    from edgepack.console.console import Console
    from edgepack.gating.results import GateResult
    from edgepack.report.gates import Gates

_STDOUT = Path("-")
_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@options.verbosity_options
@click.argument("bundles", type=options.existing_file, nargs=-1, metavar="FILE...")
@click.option(
    "--target",
    "targets",
    metavar="TARGET",
    multiple=True,
    help="`local`, or a device: ssh://[USER@]HOST[:PORT][/PREFIX]. Repeatable.  [default: local]",
)
@click.option("--installed", is_flag=True, help="Gate the installed release of the devices, of FILE if one is given.")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of devices to gate at once.  [default: all]")
@click.option("--identity", type=options.existing_file, metavar="FILE", help="Key for ssh, as in `ssh -i`.")
@click.option(
    "-o",
    "--ssh-option",
    "ssh_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="Option for ssh, as in `ssh -o`. Repeatable.",
)
@click.option(
    "--remote-dir", metavar="DIR", help="Folder for temporary files on the devices.  [default: TMPDIR, /var/tmp, /tmp]"
)
@click.option(
    "--timeout",
    "timeout_minutes",
    type=click.IntRange(min=1),
    default=240,
    show_default=True,
    metavar="MINUTES",
    help="Limit for a FILE on a device, with copying and waiting.",
)
@click.option(
    "--receipts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep receipts in DIR/TARGET, for `edgepack receipts`.  [default: for devices, receipts/ beside FILE]",
)
@click.option("--junit", type=_file, metavar="FILE", help="Write the checks as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a summary; `-` is stdout.")
@click.option(
    "--rows",
    type=options.existing_file,
    metavar="FILE",
    help="Golden rows of a bundle that does not carry them, as written by its build. The device does not keep them.",
)
@click.option("--without-rows", is_flag=True, help="Gate a bundle without its golden rows: everything but accuracy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every receipt.")
@click.pass_context
def command(
    context: click.Context,
    bundles: tuple[Path, ...],
    targets: tuple[str, ...],
    installed: bool,
    jobs: int | None,
    identity: Path | None,
    ssh_options: tuple[str, ...],
    remote_dir: str | None,
    timeout_minutes: int,
    receipts: Path | None,
    junit: Path | None,
    markdown: Path | None,
    rows: Path | None,
    without_rows: bool,
    as_json: bool,
) -> None:
    """Gate each FILE on each --target: on this machine, or on devices over SSH.

    sftp copies the bundle to a device, its own `gate` runs there, the receipt comes back, and the copy is removed. The
    device needs sshd. ssh uses its configuration, agent and known hosts, and never asks.

    Exits 0, 6 (failed) or 7 (inconclusive), and 9 if a target cannot be reached or does not fit. With several results,
    the exit code is the first of 8, 6, 1, 2, 5, 4, 9, 7, 0 that occurs.
    """
    from edgepack.gating import address, runner, ssh
    from edgepack.gating import results as gates
    from edgepack.gating.golden_rows_option import GoldenRowsOption
    from edgepack.messages import message

    if rows is not None and without_rows:
        raise UsageError("--rows and --without-rows exclude each other")
    out = _Out(junit, markdown, as_json)
    options.require_apart(out.written, [*bundles, *(file for file in (rows, identity) if file is not None)])
    console = options.console(context)
    request = runner.GateRequest(
        bundles,
        tuple(address.parse(target) for target in targets or (address.LOCAL,)),
        ssh.Client(ssh_options, identity),
        installed,
        jobs or 0,
        receipts,
        remote_dir,
        timeout_minutes,
        GoldenRowsOption(rows, without_rows),
    )
    out.clear()
    results = runner.run(request, console.line)
    found = gates.gates_of(results)
    unwritten = out.write(found)  # before the tables, whose reader may close the pipe
    unwritten += _show(results, found, out, console)
    _show_errors(results, unwritten, console, verbose=options.is_verbose(context))
    if len(results) > 1:
        summary = message("results.gate", summary=found.summary)
        console.line(summary) if out.to_stdout else console.closing([summary])
    context.exit(gates.worst([result.exit_code for result in results]) or (unwritten[0].exit_code if unwritten else 0))


@dataclass(frozen=True)
class _Out:
    """Outputs besides the tables, or instead of them. They are checked before a gate of minutes starts."""

    junit: Path | None
    markdown: Path | None
    as_json: bool

    def __post_init__(self) -> None:
        if self.as_json and self.markdown == _STDOUT:
            raise UsageError("--json and --markdown - both go to stdout", fix="name a file for --markdown")
        if self.junit is not None and self.markdown is not None and self.junit.resolve() == self.markdown.resolve():
            raise UsageError(f"--junit and --markdown are both to be written to {self.junit}")
        for file in self.written:
            options.try_file(file)

    @property
    def written(self) -> list[Path]:
        return [file for file in (self.junit, self.markdown) if file is not None and file != _STDOUT]

    def clear(self) -> None:
        """Remove the files of an earlier gate, so that an interrupted gate leaves none."""
        for file in self.written:
            options.clear(file)

    @property
    def to_stdout(self) -> bool:
        return self.as_json or self.markdown == _STDOUT

    def write(self, found: Gates) -> list[EdgepackError]:
        """Write the requested files. Return the errors, which are printed beside the verdict and do not hide it."""
        from edgepack.report import junit, markdown

        errors: list[EdgepackError] = []
        for file, render in ((self.junit, junit.render), (self.markdown, markdown.render)):
            if file is not None and file != _STDOUT:
                try:
                    options.write(file, render(found))
                except EnvironmentUnfitError as error:
                    errors.append(error)
        return errors

    def text(self, results: Sequence[GateResult], found: Gates) -> str:
        """The output to stdout instead of tables."""
        from edgepack.gating.results import document
        from edgepack.report import markdown

        return json_text(document(results)) + "\n" if self.as_json else markdown.render(found)


def _show(results: Sequence[GateResult], found: Gates, out: _Out, console: Console) -> list[EdgepackError]:
    """Print the results to stdout. Return the errors if stdout cannot be written."""
    try:
        if out.to_stdout:
            click.echo(options.encoded(out.text(results, found)), nl=False)
            return []
        for result in results:
            if result.receipt is not None:
                if len(results) > 1:
                    console.closing([f"{result.target}:"])
                console.gate(result.receipt)
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_devnull(1)
        what = f"the output cannot be written; its verdict: {found.summary}"
        return [EnvironmentUnfitError(what, why=error.strerror or str(error))]
    return []


def _show_errors(
    results: Sequence[GateResult], unwritten: Sequence[EdgepackError], console: Console, *, verbose: bool
) -> None:
    for result in results:
        if (error := result.error) is not None:
            if result.target not in error.what and len(results) > 1:
                error.what = f"{result.target}: {error.what}"
            console.error(error, verbose=verbose)
        if result.unkept is not None:
            console.error(result.unkept, verbose=verbose)  # it names the target's folder
    for error in unwritten:
        console.error(error, verbose=verbose)
