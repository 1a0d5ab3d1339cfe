"""`edgepack sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.build.options import BuildOptions
from edgepack.commands import build, options
from edgepack.errors import UsageError

if TYPE_CHECKING:
    from edgepack.results import Failure
    from edgepack.sweep.tasks import Engine


@click.command()
@options.verbosity_options
@options.recipe_argument
@options.settings_option
@options.workspace_option
@options.dist_option
@options.source_options
@click.option("--on", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Engine.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Candidates at the same time, at most.  [default: local: one for each GPU, else 1; ray: no limit]",
)
@click.option(
    "--cpus",
    type=click.IntRange(min=1),
    help="Cores of each candidate.  [default: local: an equal part; ray: 1]",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="GPUs of each candidate, for ray.",
)
@options.keep_going_option
@options.strict_option
@options.mlflow_option
@options.report_json_option
@click.pass_context
def command(
    context: click.Context,
    recipe: Path,
    settings: tuple[str, ...],
    workspace: Path | None,
    dist: Path | None,
    sources: options.SourceOptions,
    on: str,
    workers: int | None,
    cpus: int | None,
    gpus: int,
    keep_going: bool,
    strict: bool,
    mlflow: str | None,
    as_json: bool,
) -> None:
    """Build the candidates of RECIPE's `search` side by side, then choose one and build its bundles.

    The result is that of `edgepack build`, and either goes on where the other was interrupted. The candidates run in
    processes of this machine, or on the Ray cluster of RAY_ADDRESS, whose machines share the workspace and have
    edgepack installed. Their logs are in the workspace's folder sweep/. Candidates are compared, and
    bundles made, on this machine. Other schedulers run `edgepack build RECIPE --candidate INDEX`.
    """
    loaded, build_context = options.load(recipe, settings, sources)
    from edgepack.recipe.model import Recipe

    if not isinstance(loaded, Recipe) or not loaded.candidates:
        raise UsageError("this recipe has no `search`", fix=f"run `edgepack build {recipe}`")
    from edgepack.build.recipe_stages import stages_of
    from edgepack.build.workspace import Workspace
    from edgepack.sweep.tasks import TaskResources, sweep

    console = options.console(context)
    place = options.workspace_of(recipe, workspace)
    arguments = ["build", str(recipe.absolute()), *options.arguments(settings, place, sources)]
    stages = stages_of(loaded, build_context)

    def build_candidates() -> tuple[Failure, ...]:
        with Workspace(place).in_use():
            failures = sweep(stages, arguments, place, _engine(on), TaskResources(workers, cpus, gpus), console)
        if failures and (not keep_going or len(failures) == len(loaded.candidates)):
            for failure in failures[:-1]:
                console.error(failure.error)
            raise failures[-1].error
        return tuple(failures)

    build.run(
        console,
        recipe,
        loaded,
        build_context,
        BuildOptions(keep_going=keep_going, strict=strict),
        workspace=place,
        dist=dist,
        mlflow=mlflow,
        as_json=as_json,
        settings=settings,
        build_elsewhere=build_candidates,
    )


def _engine(name: str) -> Engine:
    if name == "ray":
        from edgepack.sweep.ray_cluster import RayEngine

        return RayEngine()
    from edgepack.sweep.local import LocalEngine

    return LocalEngine()
