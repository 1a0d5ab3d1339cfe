"""The plan of a build: every resolved value of the recipe, and which stages are cached or would run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgepack.artifacts import DataArtifact, Split
from edgepack.bundle import interpreters, wheels
from edgepack.data.loader import load_splits
from edgepack.pipeline import downloads, preflight
from edgepack.pipeline.calls import Calls, Results, StageCall, not_gated_here
from edgepack.pipeline.downloads import Downloads
from edgepack.pipeline.options import BuildOptions
from edgepack.pipeline.stage_calls import StageCalls, calls_for
from edgepack.pipeline.workspace import StageResult, Workspace
from edgepack.recipe.model import AnyRecipe, Recipe
from edgepack.recipe.pretrained_models import Shape, cut, parameters, shape_of
from edgepack.recipe.section import Section
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher, Training
from edgepack.results import NotRunHere
from edgepack.targets.context import BuildContext
from edgepack.training import checkpoint, environment
from edgepack.training.schedule import budget
from edgepack.util.text import counted

State = Literal["cached", "to run", "not asked for", "not run here"]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a planned build. `folder` holds a cached result; `about` describes the work."""

    stage: str
    target: str | None
    state: State
    folder: Path | None
    about: str
    candidate: str | None = None  # the searched values that its candidates share


@dataclass(frozen=True)
class Value:
    """One resolved value of a recipe: its dotted key, and whether the recipe gives it or it is a default."""

    key: str
    value: Any
    given: bool


@dataclass(frozen=True)
class Plan:
    """The resolved recipe, its stages in order, and what the build would download."""

    recipe: AnyRecipe
    values: tuple[Value, ...]
    stages: tuple[PlannedStage, ...]
    downloads: Downloads


def make(
    recipe: AnyRecipe,
    workspace: Workspace,
    options: BuildOptions = BuildOptions(),  # noqa: B008 (frozen)
    context: BuildContext | None = None,
) -> Plan:
    """Plan a build of `recipe` from the results in `workspace`. Nothing is written.

    A key depends on earlier results, so stages after the first one to run are planned as "to run". They may be cached
    if that stage gives an earlier result again.

    Raises:
        RecipeInvalidError: the data cannot be used.
        UsageError: `options` name a stage that this recipe does not have.
        EnvironmentUnfitError: an environment variable is invalid, or a bundle cannot get its wheels.
    """
    calls = calls_for(recipe, context or BuildContext())
    preflight.check_options(calls, options)
    checkpoint.interval_seconds()
    if not options.ends_before("teacher"):  # a build checks its wheels before it trains
        for target in recipe.targets:
            profile = calls.context.profile(target)
            for machine in profile.machines:
                wheels.wanted(
                    profile.on(machine),
                    calls.context,
                    serve=recipe.serve,
                    packages=recipe.requirements,
                    python=interpreters.python_of_packages(recipe, profile),
                )
    results = Results()
    for call in calls:
        found = _find(call, results, workspace, options)
        if found is not None:
            results[call] = found
    rows: Mapping[Split, int] = {}
    search = None
    if isinstance(calls, StageCalls):
        rows = _rows(calls.trained, results[calls.data].artifact if calls.data in results else None)
        search = calls.trained.search
    stages = tuple(_planned(call, calls, results, options, rows) for call in calls)
    values = tuple(_values(recipe, "", tuple(search.over) if search else ()))
    return Plan(recipe, values, stages, downloads.missing(recipe, calls.context))


def _find(
    call: StageCall[Any], results: Results, workspace: Workspace, options: BuildOptions
) -> StageResult[Any] | None:
    """The cached result of `call`; None if an input is not cached either."""
    if call.stage in options.again or not results.has_all((*call.needs, *call.alternatives)):
        return None
    work = call.work(results)
    return None if isinstance(work, NotRunHere) else workspace.load(call.kind, work.key)


def _planned(
    call: StageCall[Any], calls: Calls, results: Results, options: BuildOptions, rows: Mapping[Split, int]
) -> PlannedStage:
    folder = results[call].artifact.folder if call in results else None
    state: State = "cached" if folder else "to run"
    about = ""
    if isinstance(calls, StageCalls):
        recipe = next((chain.recipe for chain in calls.chains.values() if call in chain.calls), calls.trained)
        about = _about(call.stage, recipe, rows)
    if call.stage == "gate" and call.target is not None:
        lacking = not_gated_here(calls.context.profile(call.target))
        if lacking is not None:
            state, about = "not run here", lacking.why
    if options.ends_before(call.stage):
        state = "not asked for"
    return PlannedStage(call.stage, call.target, state, folder, about, calls.label(call) or None)


def _rows(recipe: Recipe, found: DataArtifact | None) -> Mapping[Split, int]:
    """Number of rows by split. Unlabelled texts that dev or test hold are left out only by the data stage."""
    if found is not None:
        return found.rows
    splits = load_splits(recipe.data)
    train = len(splits.rows["train"])
    train = train if recipe.data.train_rows is None else min(train, recipe.data.train_rows)
    return {"train": train, "unlabelled": len(splits.unlabelled or ())}


def _about(stage: str, recipe: Recipe, counts: Mapping[Split, int]) -> str:
    if stage == "prune":
        return _pruning(recipe.student)
    section = {"teacher": recipe.teacher, "student": recipe.student, "narrow": recipe.student}.get(stage)
    if section is None:
        return ""
    width = recipe.student.width if stage == "narrow" else 1.0
    cut_to = f"cut to {width:g} of its width, " if stage == "narrow" else ""
    shape = _shape(section, recipe, width)
    rows = counts["train"] + (counts.get("unlabelled", 0) if _is_taught(stage, recipe) else 0)
    if shape is None:
        return f"{cut_to}a model of unknown size; {rows} rows, {_device(section)}"
    is_random = stage != "narrow" and isinstance(section.model, FromScratch)
    chosen = budget(section, rows, shape.hidden, section.ranks, random_weights=is_random)
    steps = f"{counted(chosen.steps, 'step')} of {section.batch_size * section.ranks}"
    about = f"{steps} ({rows} rows x {counted(chosen.epochs, 'epoch')}, learning rate {chosen.learning_rate:g})"
    millions = parameters(shape, labels=2) / 1e6  # each further label adds some hundred weights
    # The vocabulary of a model from scratch is built from its texts, up to a maximum.
    most = "at most " if isinstance(_origin(section, recipe).model, FromScratch) else ""
    return f"{cut_to}{most}{millions:.1f} M weights; {about}, {_device(section)}"


def _pruning(student: Student) -> str:
    """The tokens that vocabulary pruning will keep."""
    pruning = student.pruning
    assert pruning is not None, "the stage exists only with `student.vocabulary: prune`"
    often = "" if pruning.min_count == 1 else f" at least {pruning.min_count} times"
    texts = "the training texts" + ("" if pruning.texts is None else f" and {Path(pruning.texts).name}")
    characters = ", and every Chinese character" if pruning.characters == "all" else ""
    return f"keeps the tokens that occur{often} in {texts}{characters}"


def _is_taught(stage: str, recipe: Recipe) -> bool:
    """Whether the model of a stage learns from soft labels. A narrowed student without a teacher is its own."""
    if recipe.teacher is None:
        return stage == "narrow"
    return stage != "teacher" and recipe.student.distill is not None


def _origin(section: Teacher | Student, recipe: Recipe) -> Teacher | Student:
    """The section of the model whose weights `section` starts from."""
    if not isinstance(section.model, FromTeacher):
        return section
    assert recipe.teacher is not None, "the recipe's validation requires a teacher"
    return recipe.teacher


def _shape(section: Teacher | Student, recipe: Recipe, width: float) -> Shape | None:
    """The shape of a model of `width` (0 to 1), without loading it; None if it is unknown."""
    start, origin = section.model, _origin(section, recipe)
    assert not isinstance(origin.model, FromTeacher)
    shape = shape_of(origin.model, origin.max_length)
    if shape is None:
        return None
    if isinstance(start, FromTeacher):
        shape = cut(shape, start.layers if isinstance(start.layers, int) else len(start.layers), start.width)
    return cut(shape, shape.layers, width)


def _device(section: Training) -> str:
    """The device of a training, without importing Paddle: `auto` is resolved when the training starts."""
    if section.device != "auto":
        return section.device
    if environment.has_gpu_build():
        return "gpu, if one can be used (auto)"
    return "cpu (auto: this Paddle is built without CUDA)"


def _values(section: Section, above: str, searched: Sequence[str]) -> Iterator[Value]:
    """The values of a section, without the keys that are `searched` over."""
    for name, field in type(section).model_fields.items():
        key = f"{above}{field.alias or name}"
        value, given = getattr(section, name), name in section.model_fields_set
        if key in searched:
            continue
        if isinstance(value, Section):
            yield from _values(value, f"{key}.", searched)
        elif isinstance(value, dict):
            yield from (Value(f"{key}.{below}", list(values), given) for below, values in value.items())
        elif isinstance(value, tuple) and value and all(isinstance(item, Section) for item in value):
            for number, item in enumerate(value):
                yield from _values(item, f"{key}[{number}].", searched)
        else:
            yield Value(key, list(value) if isinstance(value, tuple) else value, given)
