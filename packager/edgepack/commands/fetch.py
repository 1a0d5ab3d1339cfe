"""`edgepack fetch`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import options


@click.command()
@options.verbosity_options
@click.argument("recipe", type=click.Path(dir_okay=False, path_type=Path), required=False)
@options.settings_option
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    shell_complete=options.complete_target,
    help="Fetch for this target instead of a recipe's. Repeatable.",
)
@options.profiles_option
@options.wheel_cache_option
@click.pass_context
def command(
    context: click.Context,
    recipe: Path | None,
    settings: tuple[str, ...],
    targets: tuple[str, ...],
    profiles: Path | None,
    wheel_cache: Path | None,
) -> None:
    """Fetch what a build of RECIPE needs, or the packages of --target, so that the build needs no network.

    That is the pre-trained models of RECIPE, and the packages for its bundles. Run it on a machine with a network, and
    for a carried interpreter with Debian's packages. Copy the folders that it prints to the build machine, and build
    there with `--offline --wheel-cache FOLDER`. What is there already is not fetched again.
    """
    if (recipe is None) == (not targets):
        raise click.UsageError("name a recipe, or targets with --target")
    from edgepack.build import preflight
    from edgepack.bundle import bundled_interpreters
    from edgepack.packages import wheels
    from edgepack.packages.target_spec import target_specs
    from edgepack.recipe import hub
    from edgepack.recipe.hub import HubModel
    from edgepack.recipe.model import Recipe
    from edgepack.targets.context import BuildContext, default_wheel_cache
    from edgepack.util.text import counted, mib

    console = options.console(context)
    loaded = None
    if recipe is not None:
        sources = options.SourceOptions(profiles=profiles, wheel_cache=wheel_cache)
        loaded, build_context = options.load(recipe, settings, sources)
        wanted = loaded.targets
    else:
        known = options.known_profiles(profiles, Path.cwd())
        build_context = BuildContext(known, (wheel_cache or default_wheel_cache()).absolute())
        wanted = targets
    fetched: set[Path] = set()
    for target in wanted:
        profile = build_context.profile(target)
        if recipe is None and profile.by_path:
            console.line(f"{target}: the wheel of {profile.package} is on no index: a build gets it by path")
        for spec in target_specs(loaded, profile):
            fetched.update(wheels.fetch(spec, build_context, console, without_given=recipe is None))
        fetched.update(bundled_interpreters.fetch(loaded, profile, build_context, console))
    size = sum(wheel.stat().st_size for wheel in fetched)
    options.print_line(
        f"{build_context.wheel_cache}: {counted(len(fetched), 'package')} for these targets, {mib(size)}"
    )
    models: tuple[HubModel, ...] = ()
    if isinstance(loaded, Recipe):
        models = tuple(hub.models(loaded))
        preflight.require_models(loaded)
    for model in models:
        options.print_line(f"{model.folder}: {model.name}")
    if models:
        console.line(f"copy {hub.models_folder()} to the same folder of the build machine, or set {hub.HOME_VARIABLE}")
