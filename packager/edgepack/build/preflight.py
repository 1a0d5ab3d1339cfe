"""Checks before a build and before its first training, so that errors show before hours of work."""

from __future__ import annotations

import itertools
from typing import Any

from edgepack.artifacts import DataArtifact, ExamplesArtifact
from edgepack.build.options import BuildOptions
from edgepack.build.recipe_stages import RecipeStages
from edgepack.bundle import bundled_interpreters
from edgepack.data import gates
from edgepack.data.suitability import LabelledRows, row_findings
from edgepack.errors import EdgepackError, EnvironmentUnfitError, UsageError
from edgepack.messages import message
from edgepack.packages import site_packages, wheels
from edgepack.packages.target_spec import target_specs
from edgepack.recipe import hub
from edgepack.recipe.model import AnyRecipe, CustomRecipe, Recipe
from edgepack.results import with_candidate
from edgepack.stages import train
from edgepack.stages.bundle import BundleStage
from edgepack.stages.stage import Context, Stage
from edgepack.stages.train import TeacherStage, TrainingStage
from edgepack.training import environment


def check_options(stages: RecipeStages, options: BuildOptions) -> None:
    """Check that the recipe has the stages that `options` name.

    Raises:
        UsageError: it does not have one of them.
    """
    names = list(dict.fromkeys(stage.name for stage in stages))
    for name in (options.until, options.start):
        if name is not None and name not in names:
            raise UsageError(f"this recipe has no stage {name}", fix=f"name one of {', '.join(names)}")


def is_due(stages: RecipeStages, options: BuildOptions) -> bool:
    """Whether the build trains or packs: before that, packages and wheels are checked."""
    long = (stage for stage in stages if isinstance(stage, TrainingStage | BundleStage))
    return not all(options.ends_before(stage.name) for stage in long)


def check_inputs(recipe: AnyRecipe, ctx: Context, rows: Stage[Any], *, cached: bool) -> None:
    """Check the recipe against its rows, if it has any, the installed packages, and the wheels of every target.

    Warnings are counted unless the rows are `cached`; `edgepack check` prints them.

    Raises:
        RecipeInvalidError: gates, baseline or further texts do not fit the rows.
        EnvironmentUnfitError: a package or a wheel is missing.
    """
    found, context = ctx.artifact(rows), ctx.targets
    warnings = 0
    if isinstance(found, DataArtifact):
        assert not isinstance(recipe, CustomRecipe), "it has examples"
        warnings = len(found.warnings) + len(row_findings(recipe, LabelledRows.of(found)))
    if recipe.needs_paddle:
        environment.versions()
    if isinstance(found, ExamplesArtifact):
        warnings = len(gates.examples_out_of_reach(recipe.gates.accuracy, found.rows))
    if warnings and not cached:
        ctx.progress.line(message("say.warnings", n=warnings))
    for target in recipe.targets:
        profile = context.profile(target)
        for spec in target_specs(recipe, profile):
            wheels.fetch(spec, context, ctx.progress)
        bundled_interpreters.fetch(recipe, profile, context, ctx.progress)


def check_training(stage: TrainingStage, stages: RecipeStages, ctx: Context, options: BuildOptions) -> None:
    """Check devices, wheels and students before the first training of a build, which is that of `stage`.

    Raises:
        EnvironmentUnfitError: a GPU that the recipe names cannot be used.
        StageFailedError: a binary of a local wheel does not run on its target, or a student cannot be loaded.
    """
    recipe = stages.recipe
    assert isinstance(recipe, Recipe), "others train nothing"
    _check_devices(stages, stage, options)
    for target, given in ctx.targets.given.items():
        if given and target in recipe.targets:
            site_packages.require_fitting(target, ctx.targets, ctx.progress)
    if not options.keep_going:
        require_models(recipe)
    if isinstance(stage, TeacherStage):
        _check_students(recipe, keep_going=options.keep_going)


def require_models(recipe: Recipe) -> None:
    """Load each model of the hub that a recipe names once, which downloads what is not on this machine.

    Raises:
        EnvironmentUnfitError: some cannot be downloaded; all of them are named.
        StageFailedError: one cannot be loaded.
    """
    lacking: dict[str, EnvironmentUnfitError] = {}
    for model in hub.models(recipe):
        try:
            train.probe(model.name)
        except EnvironmentUnfitError as error:
            lacking[model.name] = error
    if lacking:
        first, *others = lacking.values()
        names = ", ".join(map(repr, lacking))
        what = f"models {names} cannot be downloaded" if others else first.what
        raise EnvironmentUnfitError(what, why=first.why, fix=first.fix)


def _check_devices(stages: RecipeStages, stage: TrainingStage, options: BuildOptions) -> None:
    """Require every GPU that the recipe names for the training of `stage` and later ones."""
    to_come = itertools.dropwhile(lambda one: one != stage, stages)
    asked = dict.fromkeys(
        (one.recipe_keys.get("", one.name), one.section.device)
        for one in to_come
        if isinstance(one, TrainingStage) and not options.ends_before(one.name)
    )
    if not any(device.startswith("gpu") for _, device in asked):
        return  # importing Paddle takes seconds
    environment.start()
    from edgepack.training import devices

    for role, device in asked:
        devices.require(device, f"{role}.device")


def _check_students(recipe: Recipe, *, keep_going: bool) -> None:
    """Load each student. With `keep_going`, one that loads is enough."""
    failed: list[EdgepackError] = []
    models = {repr(candidate.recipe.student.model): candidate for candidate in recipe.candidates}
    for candidate in models.values():
        try:
            train.probe(candidate.recipe.student.model)
        except EdgepackError as error:
            failed.append(with_candidate(error, candidate.name))
            if not keep_going or len(failed) == len(models):
                raise failed[0] from error
    if not models:
        train.probe(recipe.student.model)
