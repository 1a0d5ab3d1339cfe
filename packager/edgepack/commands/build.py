"""`edgepack build`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.build.options import CANDIDATE_STAGES, STAGES
from edgepack.commands import options
from edgepack.errors import EdgepackError, GateFailedError, GateInconclusiveError, UsageError
from edgepack.messages import joined, message
from edgepack.util.text import two_digits_up
from edgepack_runtime.stats import intervals

if TYPE_CHECKING:
    from edgepack.build.options import BuildOptions
    from edgepack.console.console import Console
    from edgepack.recipe.model import AnyRecipe, Candidate
    from edgepack.report.model import Report
    from edgepack.results import Build, Failure
    from edgepack.targets.context import BuildContext


@click.command()
@options.verbosity_options
@options.recipe_argument
@options.settings_option
@options.workspace_option
@options.dist_option
@options.source_options
@options.stage_options
@click.option(
    "--candidate",
    metavar="NAME|INDEX",
    help="Build one candidate of `search`, to its export; INDEX counts from 0. A later build reuses its results.",
)
@options.keep_going_option
@options.strict_option
@options.mlflow_option
@click.option(
    "--lang",
    "language",
    type=click.Choice(["en", "zh"]),
    help="Language that the report for people opens in: by default that of the locale, or of the labels.",
)
@options.report_json_option
@click.pass_context
def command(
    context: click.Context,
    recipe: Path,
    settings: tuple[str, ...],
    workspace: Path | None,
    dist: Path | None,
    sources: options.SourceOptions,
    until: str | None,
    start: str | None,
    force: bool,
    candidate: str | None,
    keep_going: bool,
    strict: bool,
    mlflow: str | None,
    language: str | None,
    as_json: bool,
) -> None:
    """Build RECIPE: train, distil, quantize, export, bundle and gate. Bundles that pass go to --dist.

    Ends with the ledger: accuracy, MiB and ms after each stage. Exits 6 if a gate failed; then no bundle is
    delivered. An inconclusive bundle is delivered, and its report names what was not shown; with `--strict`, or
    `gates.inconclusive: refuse` in the recipe, it is not, and the exit code is 7. A bundle for a target that this
    machine cannot run is delivered without a verdict; on the device, `install` runs its gates. To continue an
    interrupted build, even after kill -9, run the same command again.
    """
    if mlflow is not None and (candidate is not None or until not in (None, STAGES[-1])):
        raise click.UsageError("--mlflow logs a finished build; use it without --until and --candidate")
    loaded, build_context = options.load(recipe, settings, sources)
    build_options = options.build_options(until, start, force, keep_going=keep_going, strict=strict)
    if candidate is not None:
        loaded = _candidate_of(loaded, candidate).recipe
        build_options = replace(build_options, until=_until_export(until))
    run(
        options.console(context),
        recipe,
        loaded,
        build_context,
        build_options,
        workspace=options.workspace_of(recipe, workspace),
        dist=dist,
        mlflow=mlflow,
        language=language,
        as_json=as_json,
        settings=settings,
    )


def run(
    console: Console,
    file: Path,
    recipe: AnyRecipe,
    build_context: BuildContext,
    build_options: BuildOptions,
    *,
    workspace: Path,
    dist: Path | None,
    mlflow: str | None,
    as_json: bool,
    language: str | None = None,
    settings: Sequence[str] = (),
    build_elsewhere: Callable[[], tuple[Failure, ...]] | None = None,
) -> None:
    """Build the `recipe` of a file, print its report, deliver its bundles, and log it to MLflow if asked for.

    Args:
        dist: folder of the bundles; None for `dist` beside the recipe.
        mlflow: address of a tracking server.
        language: that the report for people opens in, "en" or "zh"; None for the reader's.
        settings: those of `--set`, for the command that a warning names.
        build_elsewhere: builds the candidates in other processes; called after the checks, returns those that failed.

    Raises:
        EdgepackError: a stage, a gate, `dist` or a candidate failed; a gate was inconclusive.
    """
    from edgepack.build import dist_folder, runner
    from edgepack.build.workspace import Workspace
    from edgepack.report import document

    dist = file.parent / "dist" if dist is None else dist
    if build_options.until in (None, STAGES[-1]):
        dist_folder.require_writable(dist)
        if recipe.sign is not None:
            from edgepack.bundle import signing

            console.line(f"bundles will be signed by {signing.require(Path(recipe.sign.key))}")
    experiment = None
    if mlflow is not None:
        from edgepack.report.mlflow_run import MlflowExperiment

        experiment = MlflowExperiment(mlflow, recipe.name)
    try:
        if build_elsewhere is not None:
            build_options = replace(build_options, failed_candidates=build_elsewhere())
        built = runner.build(recipe, Workspace(workspace), console, build_options, build_context)
    except KeyboardInterrupt:
        console.line(
            f"finished stages are kept in {workspace}: the same command continues, a training from its last "
            "checkpoint, which is written once a minute"
        )
        raise
    if built.ended_early:
        _show_early_end(built, console, as_json)
        for failure in built.failed_targets:
            console.error(failure.error)
        if built.failed_targets:
            raise _no_bundle(built.failed_targets)
        _raise_failed_candidates(built, console)
        return
    report = document.make(built, file.name)
    delivered: list[Path] = []
    delivery_error: EdgepackError | None = None
    _show(built, report, built.warnings(str(file), settings), console, as_json)
    try:
        delivered = dist_folder.write(built, report, dist, console, language)
        if experiment is not None:
            console.line(f"logged to MLflow as run {experiment.log(built, report, dist, file)}")
    except EdgepackError as error:
        delivery_error = error
    refusal = _refusal(built)
    if delivered and refusal is None and not as_json:
        console.closing(_next_steps(built, delivered))
    if refusal is not None:  # takes precedence over the error, which is only printed
        if delivery_error is not None:
            console.error(delivery_error)
        raise refusal
    if delivery_error is not None:
        raise delivery_error
    _raise_failed_candidates(built, console)


def _candidate_of(recipe: AnyRecipe, chosen: str) -> Candidate:
    """The candidate of a search by name, or by index from 0."""
    from edgepack.recipe.model import Recipe

    candidates = recipe.candidates if isinstance(recipe, Recipe) else ()
    if not candidates:
        raise UsageError("--candidate: this recipe has no `search`", fix="build it without --candidate")
    index = int(chosen) if chosen.isascii() and chosen.isdecimal() else -1
    for number, candidate in enumerate(candidates):
        if candidate.name == chosen or number == index:
            return candidate
    names = "\n".join(f"{number}: {candidate.name}" for number, candidate in enumerate(candidates))
    raise UsageError(f"--candidate: there is no candidate {chosen[:100]}", fix=f"name one of these:\n{names}")


def _until_export(until: str | None) -> str:
    """The last stage of the build of one candidate: `until`, or the last one of a candidate."""
    if until is not None and STAGES.index(until) > STAGES.index(CANDIDATE_STAGES[-1]):
        raise click.UsageError(f"--until {until} needs every candidate; use it without --candidate")
    return until or CANDIDATE_STAGES[-1]


def _show(built: Build, report: Report, warnings: Sequence[str], console: Console, as_json: bool) -> None:
    from edgepack.report.model import to_json
    from edgepack.results import NotRunHere

    if as_json:
        options.say_json(to_json(report), indent=1, sort_keys=True, allow_nan=False)
    else:
        if built.selection is not None:
            console.selection(built.selection)
        console.ledger(list(built.ledger))
        for warning in warnings:
            console.line(message("say.warning", text=warning))
        console.checks([item.bundle for item in built.target_results])
        for item in built.target_results:
            if isinstance(item.gate, NotRunHere):
                ungated = built.recipe.gates.ungated
                console.not_run(item.bundle.file_name, item.bundle.target, item.gate, ungated=ungated)
            else:
                console.gate(item.gate.receipt)
    for failure in built.failed_targets:
        console.error(failure.error)


def _show_early_end(built: Build, console: Console, as_json: bool) -> None:
    """Print the folders of the results of a build that ended early, and the ledger so far."""
    if as_json:
        from edgepack.report import document
        from edgepack_runtime.schema.fields import to_json

        selection = None if built.selection is None else to_json(document.selection(built.selection))
        ledger = [asdict(row) for row in built.ledger]
        stages = [
            {"stage": one.stage, "candidates": list(one.candidates), "folder": str(one.artifact.folder)}
            for one in built.stage_artifacts
        ]
        options.say_json({"stages": stages, "selection": selection, "ledger": ledger})
        return
    if built.selection is not None:
        console.selection(built.selection)
    if built.ledger:
        console.ledger(built.ledger)
    last = built.stage_artifacts[-1]
    console.closing([message("say.stopped", stage=last.stage, folder=last.artifact.folder)])


def _refusal(built: Build) -> EdgepackError | None:
    """Why bundles are missing: failed targets, else failed gates, else inconclusive ones that are refused; or None."""
    from edgepack.artifacts import GateArtifact
    from edgepack.report.loss_attribution import explain

    if built.failed_targets:
        return _no_bundle(built.failed_targets)
    for verdict, error_type in ((intervals.FAIL, GateFailedError), (intervals.INCONCLUSIVE, GateInconclusiveError)):
        refused = [item for item in built.target_results if item.refused == verdict]
        if refused:
            gated = [(item, item.gate.gated) for item in refused if isinstance(item.gate, GateArtifact)]
            many = len(gated) > 1
            return error_type(
                message(
                    "say.not_delivered",
                    verdict=message(f"verdict.{verdict}"),
                    targets=[item.bundle.target for item in refused],
                ),
                why=joined(
                    *(
                        joined(item.bundle.target, line, by="list.colon") if many else line
                        for item, receipt in gated
                        for line in explain(receipt, built.ledger_of(item))
                    ),
                    by="list.lines",
                ),
                fix=joined(
                    message("say.change_recipe", path=refused[0].bundle.path),
                    message("say.omit_strict") if refused[0].refused_by_strict else "",
                ),
            )
    return None


def _no_bundle(failures: Sequence[Failure]) -> EdgepackError:
    names, first = [failure.name for failure in failures], failures[0].error
    return type(first)(message("say.no_bundle", names=names), why=message("say.reasons_above"), fix=first.fix)


def _raise_failed_candidates(built: Build, console: Console) -> None:
    """Raise an error if candidates failed while others were built (`--keep-going`)."""
    for failure in built.failed_candidates:
        console.error(failure.error)
    if built.failed_candidates:
        names = [failure.name for failure in built.failed_candidates]
        first = built.failed_candidates[0].error
        raise type(first)(message("say.not_every", names=names), why=message("say.reasons_others"), fix=first.fix)


def _next_steps(built: Build, delivered: list[Path]) -> list[str]:
    """The delivered files, a limit on latency if the recipe has none, and how to install a bundle."""
    from edgepack.imported.handler_payload import EXAMPLE_ARGUMENTS
    from edgepack.results import NotRunHere

    lines: list[str] = [message("say.wrote", path=path) for path in delivered]
    for item in built.target_results:
        if item.caveats and item.refused is None:
            lines += ["", message("say.delivered_in_doubt", target=item.bundle.target)]
            lines += [message("say.line", text=line) for line in item.caveats]
    run_here = [item.bundle.file_name for item in built.target_results if not isinstance(item.gate, NotRunHere)]
    bundle = next((path for path in delivered if path.name in run_here), delivered[0])
    there = "say.install_there" if built.recipe.gates.ungated else "say.install_gated"
    install = message("say.install_here" if bundle.name in run_here else there)
    example = EXAMPLE_ARGUMENTS[built.examples.item] if built.examples is not None else ""
    if built.data is not None:
        example = built.data.example(from_test_rows=built.recipe.gates.golden.carry)
    return [
        *lines,
        "",
        *_latency_limit(built),
        install,
        f"  sh {bundle} install --prefix ~/{built.recipe.name}",
        f"  ~/{built.recipe.name}/bin/{built.recipe.name} predict {example}",
    ]


def _latency_limit(built: Build) -> list[str]:
    """Lines that suggest a latency limit of twice the slowest one measured here; empty if the recipe has one."""
    from edgepack.artifacts import GateArtifact

    if built.recipe.gates.latency is not None:
        return []
    found = [item.gate.gated.latency for item in built.target_results if isinstance(item.gate, GateArtifact)]
    measured = [latency for latency in found if latency is not None]
    if not measured:
        return []
    keys = [key for key in ("p50_ms", "p95_ms") if all(getattr(one, key) is not None for one in measured)]
    limits = ", ".join(f"{key}: {two_digits_up(2 * max(getattr(one, key) for one in measured))}" for key in keys)
    return [
        message("say.no_latency_limit", limits=limits),
        f"  latency: {{{limits}}}",
        "",
    ]
