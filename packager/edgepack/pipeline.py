"""A build: the stages of a recipe, each result made or found in the workspace, and what has to be right before them."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from edgepack.artifacts import Artifact, DataArtifact
from edgepack.datasets.suited import check_built, read_further_texts, require_judged_by
from edgepack.errors import EdgepackError, UsageError
from edgepack.order import OF_A_TARGET, Choice
from edgepack.outcome import Build, Failure, Made, Part
from edgepack.paddle_ml import checkpoint, environment
from edgepack.places import Place, Places, Whose, in_order, places_of
from edgepack.progress import Progress
from edgepack.recipe.model import Recipe
from edgepack.steps import Steps, ToRun
from edgepack.targets import baseline, carried, wheels
from edgepack.targets.supply import Supply
from edgepack.walk import EndOfPart, Hooks, walk
from edgepack.workspace import Key, Result, Workspace

A = TypeVar("A", bound=Artifact)
_TRAININGS: Final = {"teacher": "teacher", "student": "student", "narrow": "student"}  # stage -> section, in order


class Listener(Progress, Protocol):
    """A progress that also hears where a build is."""

    def stage(self, name: str, index: int, total: int, cached: bool) -> None:
        """A stage starts, or its result was found in the workspace."""

    def stage_done(self, name: str, seconds: float) -> None:
        """The stage that started last has its result."""


def stages_of(recipe: Recipe) -> list[str]:
    """The stages that a build of `recipe` goes through, those of every candidate and target one after the other."""
    return [place.stage for place in in_order(places_of(recipe))]


def check_choice(recipe: Recipe, choice: Choice) -> None:
    """Refuse what a build of `recipe` cannot be asked for.

    Raises:
        UsageError: a stage that this recipe does not have.
    """
    stages = list(dict.fromkeys(stages_of(recipe)))
    for stage in (choice.until, choice.start):
        if stage is not None and stage not in stages:
            raise UsageError(f"this recipe has no stage {stage}", fix=f"name one of {', '.join(stages)}")


def run(
    recipe: Recipe,
    workspace: Workspace,
    listener: Listener,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    supply: Supply | None = None,
) -> Build | Part:
    """Build `recipe`, taking from the workspace whatever is already there.

    Without a `supply` that is what this version knows by itself, and the usual cache.

    Returns:
        Everything that was made; a `Part` when `choice` ends the build before its gates.

    Raises:
        EdgepackError: naming the stage that failed. A missed gate does not raise: its verdict is in the result.
        UsageError: `choice` names a stage that this recipe does not have.
    """
    check_choice(recipe, choice)
    checkpoint.interval_seconds()
    stock = supply or Supply()

    def before_training(rows: DataArtifact) -> None:
        require_judged_by(recipe, rows.labels)
        if recipe.gates.baseline is not None:
            baseline.require_comparable(recipe.gates.baseline, rows.task, rows.labels)
        for finding in check_built(rows, recipe):
            listener.line(f"warning: {finding.reason}\n    fix: {finding.fix}")
        read_further_texts(recipe, lambda: rows.read("dev") + rows.read("test"))
        _check_environment(recipe, stock, listener)

    @functools.cache
    def given_wheels_fit() -> None:
        _check_given(recipe, stock, listener)

    def before(stage: str) -> None:
        _check_device(recipe, choice, stage)
        if stage in _TRAININGS:
            given_wheels_fit()

    step = _Step(workspace, listener, places_of(recipe), choice, before)
    left_out: list[Failure] = []

    def leave_out(failure: Failure) -> None:
        left_out.append(failure)
        listener.line(f"warning: this candidate is left out: {failure.error.what}")

    def put_off(name: str) -> None:
        listener.line(f"{name} is not tried: search.minutes have passed; the next build goes on with it")

    try:
        with workspace.in_use():
            steps = Steps(recipe, workspace, listener, step, stock, keep_going=choice.keep_going)
            built = walk(recipe, steps, choice, Hooks(before_training, leave_out, put_off, lambda: step.spent))
            return replace(built, left_out=tuple(left_out))
    except EndOfPart:
        return Part(recipe, tuple(step.made), tuple(left_out))


def _check_environment(recipe: Recipe, supply: Supply, listener: Listener) -> None:
    """What is not installed, and what a target lacks, shows now and not after hours of training."""
    environment.versions()
    for target in recipe.targets:
        wheels.fetch(supply.profile(target), supply, listener, serve=recipe.serve)


def _check_given(recipe: Recipe, supply: Supply, listener: Listener) -> None:
    """What is in wheels that were given by path has been seen by nobody here: look before the first training.

    Raises:
        StageFailedError: a file in one does not run on its target.
    """
    for target, given in supply.given.items():
        if given and target in recipe.targets:
            carried.require_fitting(target, supply, listener)


def _check_device(recipe: Recipe, choice: Choice, stage: str) -> None:
    """Before a training, that every GPU that it or one to come asks for can be used.

    Raises:
        EnvironmentUnfitError: naming the key that asks for it.
    """
    stages = tuple(_TRAININGS)
    to_come = stages[stages.index(stage) :] if stage in stages else ()
    if choice.until in to_come:
        to_come = to_come[: to_come.index(choice.until) + 1]
    narrowed = tuple(student for student in recipe.students if student.is_narrowed)
    sections = {"teacher": (recipe.teacher,), "student": recipe.students, "narrow": narrowed}
    asked = (
        (_TRAININGS[name], section.device) for name in to_come for section in sections[name] if section is not None
    )
    wanted = list(dict.fromkeys(asked))
    if not any(device.startswith("gpu") for _, device in wanted):
        return  # importing Paddle takes seconds, and nothing can be wrong
    environment.start()
    from edgepack.paddle_ml import device

    for role, place in wanted:
        device.require(place, f"{role}.device")


class _Step:
    """Makes one stage's result, or finds it in the workspace, and tells the listener which.

    What several candidates have in common is made, and told of, once.
    """

    def __init__(
        self,
        workspace: Workspace,
        listener: Listener,
        places: Places,
        choice: Choice,
        before: Callable[[str], None],
    ) -> None:
        self._workspace = workspace
        self._listener = listener
        self._places = places
        self._choice = choice
        self._before = before
        self._new: set[Key] = set()
        self._had: dict[Place, Result[Any]] = {}
        self._failed: dict[Place, EdgepackError] = {}
        self.made: list[Made] = []
        self.spent = 0.0  # seconds, on results that were not there

    def __call__(
        self, kind: type[A], key: Key, make: Callable[[Path], A], whose: Whose = None, *, only_found: bool = False
    ) -> Result[A]:
        if self._choice.ends_before(key.stage):
            raise EndOfPart
        place = self._places[key.stage, whose]
        if place in self._failed:
            raise copy.copy(self._failed[place])
        if place not in self._had:
            try:
                self._had[place] = self._result(kind, key, make, place, only_found=only_found)
            except EdgepackError as error:
                self._failed[place] = copy.copy(error)  # whoever tells of it adds whose it is
                raise
            self.made.append(Made(key.stage, self._had[place].artifact, place.candidates))
        # A target's stages end where all of them are there, in `walk`.
        if key.stage == self._choice.until and key.stage not in OF_A_TARGET:
            raise EndOfPart
        return self._had[place]

    def _result(
        self, kind: type[A], key: Key, make: Callable[[Path], A], place: Place, *, only_found: bool
    ) -> Result[A]:
        again = key.stage in self._choice.again and key not in self._new  # candidates may share a training
        found = None if again else self._workspace.load(kind, key)
        if found is None and only_found:
            raise ToRun
        self._listener.stage(place.name, place.number, len(set(self._places.values())), cached=found is not None)
        if found is not None:
            return found
        if not again and self._workspace.is_damaged(key):
            self._listener.line("the stored result does not match its seal any more: it is made anew")
        started = time.monotonic()
        try:
            found = self._made(kind, key, make, again=again)
        finally:
            seconds = time.monotonic() - started
            self.spent += seconds
        self._listener.stage_done(key.stage, seconds)
        return found

    def _made(self, kind: type[A], key: Key, make: Callable[[Path], A], *, again: bool) -> Result[A]:
        with self._workspace.making(key, self._listener.line):
            # Another build may have made it while this one waited.
            found = None if again else self._workspace.load(kind, key)
            if found is not None:
                self._listener.line("another build has made it meanwhile: it is taken up")
                return found
            self._before(key.stage)
            found = self._workspace.build(key, make)
            self._new.add(key)
            return found
