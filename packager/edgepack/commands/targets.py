"""`edgepack targets`: what bundles can be built for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from edgepack.commands import common, supplies


@click.group(name="targets")
def command() -> None:
    """What bundles can be built for: list it, show one, add a device of your own, lock its wheels."""


@command.command(name="list")
@common.speaking
@supplies.profiles_option
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.pass_context
def list_(context: click.Context, profiles: Path | None, as_json: bool) -> None:
    """List all targets: Python, C library, CPU or GPU, whether its wheels are locked, and whether it can run here."""
    from edgepack import tables
    from edgepack.targets import describe

    found = [describe.in_short(profile) for profile in supplies.known_profiles(profiles, Path.cwd()).values()]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False))
        return
    console = common.console(context)
    console.show(tables.targets(found, live=console.is_live))


@command.command(name="show")
@common.speaking
@click.argument("name", shell_complete=supplies.complete_target)
@supplies.profiles_option
@supplies.pythons_option
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.pass_context
def show(context: click.Context, name: str, profiles: Path | None, pythons: tuple[Path, ...], as_json: bool) -> None:
    """Show every fact about target NAME, and the packages that its bundles carry."""
    from edgepack import tables
    from edgepack.targets import describe
    from edgepack.targets.supply import Supply

    profile = Supply(supplies.known_profiles(profiles, Path.cwd())).known(name)
    facts = describe.in_full(profile, pythons)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    common.console(context).show(tables.facts(facts))


@command.command(name="add")
@common.speaking
@click.argument("probe", type=common.existing_file)
@click.option("--name", required=True, help="What the target is to be called; it becomes part of bundles' names.")
@click.option("--gpu", is_flag=True, help="A profile whose model runs on the device's NVIDIA GPU, instead of its CPU.")
@click.option(
    "--profiles",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to add it to; else ${supplies.PROFILES_VARIABLE}, else {supplies.PROFILES_FILE} in this folder.",
)
@click.pass_context
def add(context: click.Context, probe: Path, name: str, gpu: bool, profiles: Path | None) -> None:
    """Make a target of a device from its PROBE: `python3 FILE.edgepack doctor --probe probe.json` writes one there.

    Any bundle will do for that, also one that does not fit the device.
    """
    from edgepack.targets import adopt, describe
    from edgepack.targets.profiles import load_profiles

    here = Path.cwd()
    file = profiles or supplies.profiles_file(None, here) or here / supplies.PROFILES_FILE
    facts = adopt.read_probe(probe)
    taken = load_profiles(file if file.is_file() else None)
    adopt.add(file, name, adopt.table_of(facts, gpu=gpu), taken)
    console = common.console(context)
    click.echo(f"added {name} to {file}")
    if facts.get("gpu") and not gpu:
        console.line("the device has an NVIDIA GPU; this profile runs on its CPU. Add --gpu for one that runs on that.")
    made = load_profiles(file)[name]
    if describe.in_short(made).wheels is None:
        click.echo(f"its wheels are not locked yet: edgepack targets lock {name}")
    else:
        click.echo(f"its wheels are locked. In a recipe: targets: [{name}]")


@command.command(name="lock")
@common.speaking
@click.argument("name", shell_complete=supplies.complete_target)
@supplies.profiles_option
@click.pass_context
def lock(context: click.Context, name: str, profiles: Path | None) -> None:
    """Make the locks of target NAME anew: newest versions with wheels for it, by hash. Takes uv and a package index."""
    from edgepack.targets import locking
    from edgepack.targets.supply import Supply

    profile = Supply(supplies.known_profiles(profiles, Path.cwd())).known(name)
    for one in locking.locks_of(profile):
        packages = locking.write(profile, one)
        click.echo(f"{one.file}: {', '.join(packages)}")
