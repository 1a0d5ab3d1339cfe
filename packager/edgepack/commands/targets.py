"""`edgepack targets`: the devices that bundles can be built for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from edgepack.commands import options


@click.group(name="targets")
def command() -> None:
    """List targets, show one, add your own device, lock its packages."""


@command.command(name="list")
@options.verbosity_options
@options.profiles_option
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.pass_context
def list_(context: click.Context, profiles: Path | None, as_json: bool) -> None:
    """List all targets: the interpreter and C library of each, CPU or GPU, and whether its bundles run here."""
    from edgepack.console import tables, target_tables

    found = [target_tables.in_short(profile) for profile in options.known_profiles(profiles, Path.cwd()).values()]
    if as_json:
        options.say_json([dataclasses.asdict(one) for one in found])
        return
    console = options.console(context)
    console.show(tables.targets(found, live=console.is_terminal))


@command.command(name="show")
@options.verbosity_options
@click.argument("name", shell_complete=options.complete_target)
@options.profiles_option
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.pass_context
def show(context: click.Context, name: str, profiles: Path | None, as_json: bool) -> None:
    """Show every fact about target NAME, and the packages of its bundles."""
    from edgepack.console import tables, target_tables
    from edgepack.targets.context import BuildContext

    profile = BuildContext(options.known_profiles(profiles, Path.cwd())).known(name)
    facts = target_tables.in_full(profile)
    if as_json:
        options.say_json(facts)
        return
    options.console(context).show(tables.facts(facts))


@command.command(name="add")
@options.verbosity_options
@click.argument("probe", type=options.existing_file)
@click.option("--name", required=True, help="Name of the target. It becomes part of the bundles' names.")
@click.option("--gpu", is_flag=True, help="Run the model on the device's NVIDIA GPU instead of its CPU.")
@click.option(
    "--profiles",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to add it to; else ${options.PROFILES_VARIABLE}, else {options.PROFILES_FILE} in this folder.",
)
@click.pass_context
def add(context: click.Context, probe: Path, name: str, gpu: bool, profiles: Path | None) -> None:
    """Add a target for a device from its PROBE. `sh FILE.edgepack doctor --probe probe.json` writes it there.

    Any bundle can write a probe, even one that does not fit the device.
    """
    from edgepack.targets import from_probe
    from edgepack.targets.profile_file import load_profiles

    here = Path.cwd()
    file = profiles or options.profiles_file(None, here) or here / options.PROFILES_FILE
    facts = from_probe.read_probe(probe)
    taken = load_profiles(file if file.is_file() else None)
    from_probe.add(file, name, from_probe.table_of(facts, gpu=gpu), taken)
    console = options.console(context)
    options.print_line(f"added {name} to {file}")
    if facts.gpu and not gpu:
        console.line("the device has an NVIDIA GPU, and this profile uses its CPU. Add --gpu to use the GPU.")
    options.print_line(f"in a recipe: targets: [{name}]")


@command.command(name="lock")
@options.verbosity_options
@click.argument("name", shell_complete=options.complete_target)
@options.profiles_option
@click.pass_context
def lock(context: click.Context, name: str, profiles: Path | None) -> None:
    """Lock the newest packages for target NAME, with hashes, in this copy of edgepack.

    Needs uv and a package index; for the interpreter, apt of Debian 12.
    """
    from edgepack.packages import locks
    from edgepack.targets.context import BuildContext

    profile = BuildContext(options.known_profiles(profiles, Path.cwd())).known(name)
    for file, packages in locks.write(profile).items():
        options.print_line(f"{file}: {', '.join(packages)}")
