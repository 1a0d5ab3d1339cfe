"""What has to be right before a build, and before a stage that takes hours."""

from __future__ import annotations

from typing import Final

from edgepack.artifacts import DataArtifact
from edgepack.bundle import baseline, site_packages, wheels
from edgepack.data.recipe_checks import check_built, read_further_texts, require_judged_by
from edgepack.errors import EdgepackError, UsageError
from edgepack.pipeline.calls import StageCalls
from edgepack.pipeline.options import BuildOptions
from edgepack.pipeline.stages import student
from edgepack.progress import Progress
from edgepack.recipe.model import Recipe
from edgepack.results import of_candidate
from edgepack.training import environment

TRAININGS: Final = {"teacher": "teacher", "student": "student", "narrow": "student"}  # stage -> section, in order


def check_options(calls: StageCalls, options: BuildOptions) -> None:
    """Refuse a stage that the recipe does not have.

    Raises:
        UsageError: naming it.
    """
    stages = list(dict.fromkeys(call.stage for call in calls))
    for stage in (options.until, options.start):
        if stage is not None and stage not in stages:
            raise UsageError(f"this recipe has no stage {stage}", fix=f"name one of {', '.join(stages)}")


def check_data(calls: StageCalls, rows: DataArtifact, progress: Progress) -> None:
    """Check the recipe against its rows, and this machine against the recipe.

    What is not installed, and what a target lacks, shows now and not after hours of training.

    Raises:
        RecipeInvalidError: gates, baseline or further texts do not fit the rows.
        EnvironmentUnfitError: a package or a wheel is missing.
    """
    recipe, supply = calls.recipe, calls.supply
    require_judged_by(recipe, rows.labels)
    if recipe.gates.baseline is not None:
        baseline.require_comparable(recipe.gates.baseline, rows.task, rows.labels)
    for finding in check_built(rows, recipe):
        progress.line(f"warning: {finding.reason}\n    fix: {finding.fix}")
    read_further_texts(recipe, lambda: rows.read("dev") + rows.read("test"))
    environment.versions()
    for target in recipe.targets:
        wheels.fetch(supply.profile(target), supply, progress, serve=recipe.serve)


def check_training(stage: str, calls: StageCalls, options: BuildOptions, progress: Progress) -> None:
    """Before the first training of a build, which is that of `stage`, check what may fail only after it.

    Raises:
        EnvironmentUnfitError: a GPU that a key of the recipe asks for cannot be used.
        StageFailedError: a file in a wheel by path does not run on its target, or a student cannot be loaded.
    """
    recipe, supply = calls.recipe, calls.supply
    _check_devices(recipe, stage, options)
    for target, given in supply.given.items():
        if given and target in recipe.targets:
            site_packages.require_fitting(target, supply, progress)
    if stage == "teacher":
        _check_students(recipe, keep_going=options.keep_going)


def _check_devices(recipe: Recipe, stage: str, options: BuildOptions) -> None:
    """Every GPU that the training of `stage`, or a later one, asks for."""
    to_come = [name for name in list(TRAININGS)[list(TRAININGS).index(stage) :] if not options.ends_before(name)]
    narrowed = tuple(student for student in recipe.students if student.is_narrowed)
    sections = {"teacher": (recipe.teacher,), "student": recipe.students, "narrow": narrowed}
    asked = dict.fromkeys(
        (TRAININGS[name], section.device) for name in to_come for section in sections[name] if section is not None
    )
    if not any(device.startswith("gpu") for _, device in asked):
        return  # importing Paddle takes seconds, and nothing can be wrong
    environment.start()
    from edgepack.training import devices as device

    for role, place in asked:
        device.require(place, f"{role}.device")


def _check_students(recipe: Recipe, *, keep_going: bool) -> None:
    """Load each student before its teacher is trained; to keep going with the others, one of them is enough."""
    failed: list[EdgepackError] = []
    models = {repr(one.recipe.student.model): one for one in recipe.candidates}
    for candidate in models.values():
        try:
            student.check(candidate.recipe.student)
        except EdgepackError as error:
            failed.append(of_candidate(error, candidate.name))
            if not keep_going or len(failed) == len(models):
                raise failed[0] from error
    if not models:
        student.check(recipe.student)
