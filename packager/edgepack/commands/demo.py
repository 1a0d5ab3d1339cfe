"""`edgepack demo`: the whole way of a small model, each command as a user types it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

import click

from edgepack.commands import options
from edgepack.errors import StageFailedError, UsageError
from edgepack.messages import local, message
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.util import columns

_RECIPE: Final = Template("""\
edgepack: 1
name: demo
version: 1.0.0
task: text-classification
data: {train: builtin:reviews-zh}
linear: only         # $quick
targets: [local]     # $more
gates: {accuracy: {min: 0.85}, latency: {p50_ms: 5}}
""")


class _Step(NamedTuple):
    """Commands of a shell under one title; the last one ends with `code`."""

    title: str
    commands: tuple[str, ...]
    code: int = 0


# Programs that use the processor beside a demo need not end first: --wait 0.
_MARGIN: Final = "  "  # before what a command says
_STEPS: Final = (
    _Step(message("demo.recipe"), ("cat recipe.yaml",)),
    _Step(
        message("demo.bundle"),
        (
            "edgepack -q build recipe.yaml > build.txt",
            "grep -e n-gram -e PASS -e min -e p50_ms build.txt",
            "ls -sh dist/*.edgepack",
        ),
    ),
    _Step(
        message("demo.install"),
        ("sh dist/demo-1.0.0-local.edgepack install --prefix app --wait 0 2> install.txt", "grep ok install.txt"),
    ),
    _Step(
        message("demo.answers"),
        ("app/bin/demo predict 房间很干净，早餐也好吃。 服务态度差，房间又小又旧。 味道不好吃。",),
    ),
    _Step(
        message("demo.damage"),
        (
            "cp dist/demo-1.0.0-local.edgepack damaged.edgepack",
            "printf X | dd of=damaged.edgepack bs=1 seek=200000 conv=notrunc status=none",
            "sh damaged.edgepack install --prefix app",
        ),
        int(ExitCode.BUNDLE_INVALID),
    ),
    _Step(
        message("demo.update"),
        (
            "edgepack -q build recipe.yaml --set version=1.1.0 > build.txt",
            "sh dist/demo-1.1.0-local.edgepack install --prefix app --wait 0 2> update.txt",
            "app/bin/demo rollback 2> rollback.txt",
        ),
    ),
)


@click.command()
@options.verbosity_options
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Work in DIR, which must not exist, and leave it there. By default a temporary folder, which is removed.",
)
def command(keep: Path | None) -> None:
    """Build, install, run, damage, update and roll back a small model, in a quarter of a minute.

    A linear model of synthetic Chinese reviews passes every step of a real one, below a new folder. Each command is
    printed as it is run, with its output.
    """
    with ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgepack-demo-")))
        else:
            folder = keep
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                raise UsageError(message("file.exists", path=folder), fix=message("file.name_another")) from None
        begin = time.monotonic()
        recipe = _RECIPE.substitute(quick=local(message("demo.quick")), more=local(message("demo.more")))
        (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
        for number, step in enumerate(_STEPS, 1):
            click.secho(columns.wrapped(f"\n{number}. {local(step.title)}", columns.asked()), bold=True)
            for line in step.commands:
                code = step.code if line == step.commands[-1] else 0
                _run(line.replace("PASS", local(message("verdict.pass")).upper()), folder, code)
        click.secho(f"\n{local(message('demo.took', seconds=time.monotonic() - begin))}", bold=True)
    if keep is not None:
        click.echo(local(message("demo.kept", folder=keep)))
    click.echo(local(message("demo.own")))


def _run(line: str, folder: Path, code: int) -> None:
    """Print a line of a shell, run it, and print what it says.

    Raises:
        StageFailedError: it does not end with `code`.
    """
    click.secho(f"$ {line}", fg="cyan")
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    variables = {**os.environ, "PATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1"}
    if (wide := columns.asked()) is not None:
        variables["COLUMNS"] = str(wide - len(_MARGIN))
    shell = subprocess.Popen(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    with shell:
        assert shell.stdout is not None
        for said in shell.stdout:
            click.echo(columns.wrapped(f"{_MARGIN}{said}", wide), nl=False)
    if shell.returncode != code:
        raise StageFailedError(
            f"demo: `{line}` ended with exit code {shell.returncode} instead of {code}",
            fix=f"run it again with --keep DIR, and the command alone in DIR: cd DIR; {shlex.join(['sh', '-c', line])}",
        )
