"""What a build would do, without doing any of it: every value as it is resolved, and which stages would run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from edgepack.artifacts import Artifact, DataArtifact
from edgepack.datasets.load import load_splits
from edgepack.order import Choice
from edgepack.outcome import NotRunHere
from edgepack.paddle_ml import checkpoint, environment
from edgepack.pipeline import check_choice
from edgepack.places import Place, Places, Whose, in_order, places_of
from edgepack.progress import SILENT
from edgepack.recipe.model import Recipe
from edgepack.recipe.presets import shape_of
from edgepack.recipe.section import Section
from edgepack.recipe.shapes import cut, parameters
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher, Training
from edgepack.steps import Steps, ToRun
from edgepack.targets import here, wheels
from edgepack.targets.interpreters import Interpreter
from edgepack.targets.supply import Supply
from edgepack.walk import EndOfPart, walk
from edgepack.wording import counted
from edgepack.workspace import Key, Result, Workspace

A = TypeVar("A", bound=Artifact)
State = Literal["cached", "to run", "not asked for", "not run here"]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a build to come. `folder` holds the result of a cached one; `about` says what it will do."""

    stage: str
    target: str | None
    state: State
    folder: Path | None
    about: str
    candidate: str | None = None  # in words: what those that have it have in common


@dataclass(frozen=True)
class Value:
    """One resolved value of a recipe: its dotted key, and whether the recipe says it or a default does."""

    key: str
    value: Any
    given: bool


@dataclass(frozen=True)
class Plan:
    """The resolved recipe and its stages in order."""

    recipe: Recipe
    values: tuple[Value, ...]
    stages: tuple[PlannedStage, ...]


def make(
    recipe: Recipe,
    workspace: Workspace,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    supply: Supply | None = None,
) -> Plan:
    """Look into `workspace` for what a build of `recipe` would find there. Nothing is written.

    A result's name follows from the results before it, so of what comes after the first stage that has to run nothing
    is known: it may turn out to be there, if that stage ends with what it ended with before.

    Raises:
        RecipeInvalidError: when the data cannot be used.
        UsageError: `choice` names a stage that this recipe does not have.
        EnvironmentUnfitError: a variable of the environment, or what its bundles would carry, is what a build would
            refuse.
    """
    check_choice(recipe, choice)
    stock = supply or Supply()
    checkpoint.interval_seconds()
    if not choice.ends_before("teacher"):  # a build looks before it trains
        for target in recipe.targets:
            wheels.wanted(stock.profile(target), stock, serve=recipe.serve)
    places = places_of(recipe)
    look = _Look(workspace, places, choice)
    # What is not there yet ends the walk, or its candidate's part of it: all that can be known is known then.
    with contextlib.suppress(ToRun, EndOfPart):
        walk(recipe, Steps(recipe, workspace, SILENT, look, stock), choice)
    rows = _training_rows(recipe, look.found.get(places["data", None]))
    recipes = {candidate.name: candidate.recipe for candidate in recipe.candidates}
    stages = []
    for place in in_order(places):
        found = look.found.get(place)
        folder = found.artifact.folder if found is not None else None
        state: State = "cached" if folder else "to run"
        about = _about(place.stage, recipes.get(next(iter(place.candidates), ""), recipe), rows)
        runner = _runner(place, stock)
        if isinstance(runner, NotRunHere):
            state, about = "not run here", runner.why
        elif runner is not None:
            about = f"with CPython {runner.version}"
        if choice.ends_before(place.stage):
            state = "not asked for"
        stages.append(PlannedStage(place.stage, place.target, state, folder, about, place.label or None))
    return Plan(recipe, tuple(_values(recipe, "", tuple(recipe.search.over) if recipe.search else ())), tuple(stages))


def _runner(place: Place, supply: Supply) -> Interpreter | NotRunHere | None:
    """What a bundle will be gated with, or why it is not; None for other stages."""
    if place.stage != "gate" or place.target is None:
        return None
    profile = supply.profile(place.target)
    return here.runner(profile, profile.provider, jetpack=profile.jetpack, pythons=supply.pythons)


class _Look:
    """Finds stage results and makes none; `found` has those that are in the workspace."""

    def __init__(self, workspace: Workspace, places: Places, choice: Choice) -> None:
        self._workspace = workspace
        self._places = places
        self._again = choice.again
        self.found: dict[Place, Result[Any]] = {}

    def __call__(
        self, kind: type[A], key: Key, make: Callable[[Path], A], whose: Whose = None, *, only_found: bool = False
    ) -> Result[A]:
        place = self._places[key.stage, whose]
        if place not in self.found:
            found = None if key.stage in self._again else self._workspace.load(kind, key)
            if found is None:
                raise ToRun
            self.found[place] = found
        return self.found[place]


def _training_rows(recipe: Recipe, found: Result[DataArtifact] | None) -> int:
    if found is not None:
        return found.artifact.rows["train"]
    count = len(load_splits(recipe.data).rows["train"])
    return count if recipe.data.train_rows is None else min(count, recipe.data.train_rows)


def _about(stage: str, recipe: Recipe, rows: int) -> str:
    if stage == "prune":
        return _pruning(recipe.student)
    section = {"teacher": recipe.teacher, "student": recipe.student, "narrow": recipe.student}.get(stage)
    if section is None:
        return ""
    steps = max(1, round(section.epochs * math.ceil(rows / section.batch_size)))
    epochs = "epoch" if section.epochs == 1 else "epochs"
    about = f"{counted(steps, 'step')} of {section.batch_size} ({rows} rows x {section.epochs:g} {epochs})"
    width = recipe.student.width if stage == "narrow" else 1.0
    cut_to = f"cut to {width:g} of its width, " if stage == "narrow" else ""
    return f"{cut_to}{_size(section, recipe, width)}; {about}, {_device(section)}"


def _pruning(student: Student) -> str:
    """Which tokens of the vocabulary will stay."""
    pruning = student.pruning
    assert pruning is not None, "a stage of students that are pruned only"
    often = "" if pruning.min_count == 1 else f" at least {pruning.min_count} times"
    texts = "the training texts" + ("" if pruning.texts is None else f" and {Path(pruning.texts).name}")
    characters = ", and every Chinese character" if pruning.characters == "all" else ""
    return f"keeps the tokens that occur{often} in {texts}{characters}"


def _size(section: Teacher | Student, recipe: Recipe, width: float) -> str:
    """How many weights the model has that keeps so much of its width, told without loading it."""
    model, max_length = section.model, section.max_length
    start = model if isinstance(model, FromTeacher) else None
    if isinstance(model, FromTeacher):
        assert recipe.teacher is not None, "a recipe without a teacher is refused before"
        model, max_length = recipe.teacher.model, recipe.teacher.max_length
    shape = shape_of(model, max_length)
    if shape is None:
        return "a model of unknown size"
    if start is not None:
        shape = cut(shape, start.layers if isinstance(start.layers, int) else len(start.layers), start.width)
    shape = cut(shape, shape.layers, width)
    millions = parameters(shape, labels=2) / 1e6  # a label more is some hundred weights more
    # The vocabulary of a model from scratch is built from its texts, and may turn out smaller than it may be.
    return f"{'at most ' if isinstance(model, FromScratch) else ''}{millions:.1f} M weights"


def _device(section: Training) -> str:
    """Where a training would run, told without importing Paddle: what `auto` finds shows when it starts."""
    if section.device != "auto":
        return section.device
    if environment.has_gpu_build():
        return "gpu, if one can be used (auto)"
    return "cpu (auto: this Paddle is built without CUDA)"


def _values(section: Section, above: str, searched: Sequence[str]) -> Iterator[Value]:
    """The values of a section; of the keys that are `searched` over there is no one value to tell."""
    for name, field in type(section).model_fields.items():
        key = f"{above}{field.alias or name}"
        value, given = getattr(section, name), name in section.model_fields_set
        if key in searched:
            continue
        if isinstance(value, Section):
            yield from _values(value, f"{key}.", searched)
        elif isinstance(value, dict):
            yield from (Value(f"{key}.{below}", list(values), given) for below, values in value.items())
        elif isinstance(value, tuple) and value and all(isinstance(one, Section) for one in value):
            for number, one in enumerate(value):
                yield from _values(one, f"{key}[{number}].", searched)
        else:
            yield Value(key, list(value) if isinstance(value, tuple) else value, given)
