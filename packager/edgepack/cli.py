"""The command line: parse, call, print. Heavy imports happen inside the commands."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack import __version__
from edgepack.errors import EdgepackError, GateFailedError, GateInconclusiveError
from edgepack_runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from edgepack.console import Console
    from edgepack.outcome import Build

RECIPE = click.Path(dir_okay=False, path_type=Path)
BUNDLE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Commands(click.Group):
    """Commands whose errors end in one place: what, why, fix on stderr, and the error's own exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except EdgepackError as error:
            _console(context).error(error, verbose=context.params["verbose"])
            context.exit(int(error.exit_code))
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - the last resort: an unexpected error still reads as one
            if context.params["verbose"]:
                traceback.print_exc()
            click.echo(
                f"error: unexpected {type(error).__name__}: {error}\n  fix: run again with -v and report it",
                err=True,
            )
            context.exit(int(ExitCode.UNEXPECTED))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgepack")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def main(context: click.Context, quiet: bool, verbose: bool) -> None:
    """One recipe in, one gated offline bundle out.

    \b
    edgepack check recipes/quickstart.yaml     find what is wrong before anything runs
    edgepack build recipes/quickstart.yaml     train, distil, quantize, export, bundle, gate
    edgepack gate dist/NAME.edgepack           gate a finished bundle on this machine
    edgepack verify dist/NAME.edgepack         check every byte of a bundle
    """
    context.obj = {"quiet": quiet}
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime 1.31 reports home from its first import on


@main.command()
@click.argument("recipe", type=RECIPE)
@click.pass_context
def check(context: click.Context, recipe: Path) -> None:
    """Check RECIPE and the data it names; print every finding as file:line, reason, fix."""
    from edgepack.datasets.load import load_splits

    loaded = _load(recipe)
    splits = load_splits(loaded.data)
    _console(context).findings(list(splits.warnings))
    counts = ", ".join(f"{len(rows)} {split}" for split, rows in splits.rows.items())
    click.echo(f"{recipe}: valid ({counts} rows)")


@main.command()
@click.argument("recipe", type=RECIPE)
@click.option(
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".edgepack"),
    show_default=True,
    help="Stage results, taken up again by the next build.",
)
@click.option(
    "--dist",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist"),
    show_default=True,
    help="Where bundles that passed and reports go.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON instead of tables.")
@click.pass_context
def build(context: click.Context, recipe: Path, workspace: Path, dist: Path, as_json: bool) -> None:
    """Build RECIPE: train, distil, quantize, export, bundle and gate; bundles that pass go to --dist.

    Ends with the loss ledger: what each stage cost in accuracy, MiB and ms. Exits 6 when a gate failed and 7 when
    one could not be decided; no bundle is delivered then.
    """
    loaded = _load(recipe)
    from edgepack import delivery, pipeline
    from edgepack.report import document
    from edgepack.workspace import Workspace

    console = _console(context)
    if not any(loaded.gates.model_dump().values()):
        console.line("warning: the recipe sets no gates: the bundle is measured, but nothing decides about it")
    built = pipeline.run(loaded, Workspace(workspace), console)
    delivered = delivery.deliver(built, dist)
    if as_json:
        click.echo(document.dumps(document.make(built)))
    else:
        console.ledger(list(built.ledger))
        for item in built.deliveries:
            console.gate(item.gate.receipt)
    _raise_unless_passed(built)
    console.closing(_next_steps(built, delivered))


@main.command()
@click.argument("bundle", type=BUNDLE)
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@click.pass_context
def gate(context: click.Context, bundle: Path, as_json: bool) -> None:
    """Gate BUNDLE on this machine, in a process of its own; exits 0, 6 (failed) or 7 (inconclusive)."""
    import json

    from edgepack.stages.gate import gate_file

    console = _console(context)
    exit_code, receipt = gate_file(bundle, console)
    if as_json:
        click.echo(json.dumps(receipt, ensure_ascii=False))
    else:
        console.gate(receipt)
    context.exit(exit_code)


@main.command()
@click.argument("bundle", type=BUNDLE)
def verify(bundle: Path) -> None:
    """Check every byte of BUNDLE against its manifest; exits 8 naming the damaged file."""
    from edgepack.targets.verified import verified

    manifest = verified(bundle)
    click.echo(
        f"{bundle}: {manifest.name} {manifest.version} for {manifest.target.profile}, "
        f"{len(manifest.files)} files, intact"
    )


def _load(recipe: Path) -> Any:
    from edgepack.recipe.load import load_recipe
    from edgepack.targets.profiles import load_profiles

    return load_recipe(recipe, known_targets=load_profiles().keys())


def _console(context: click.Context) -> Console:
    from edgepack.console import Console

    return Console(quiet=bool((context.obj or {}).get("quiet")))


def _raise_unless_passed(built: Build) -> None:
    """One error for the worst verdict of all targets, naming figure, distance and the stage that lost it."""
    from edgepack.report.blame import explain

    for verdict, kind in (("fail", GateFailedError), ("inconclusive", GateInconclusiveError)):
        missed = [item for item in built.deliveries if item.gate.verdict == verdict]
        if missed:
            raise kind(
                f"gate {verdict}: no bundle was delivered for {', '.join(item.gate.target for item in missed)}",
                why="\n".join(line for item in missed for line in explain(item.gate.receipt, built.ledger)),
                fix=f"the candidate is kept at {missed[0].bundle.path}; change the recipe or the gate and build again",
            )


def _next_steps(built: Build, delivered: list[Path]) -> list[str]:
    bundle = delivered[0]
    return [
        *(f"wrote {path}" for path in delivered),
        "",
        "install it, here or on a device that has never seen a network:",
        f"  python3 {bundle} install --prefix ~/{built.recipe.name}",
        f'  ~/{built.recipe.name}/bin/{built.recipe.name} predict "{built.data.example()}"',
    ]


if __name__ == "__main__":
    sys.exit(main())
