"""The stages in order: data, teacher, student, prune, quantize, export, then bundle and gate for each target.

A recipe with `search` has a student for each of its candidates, pruned where it asks for that, and then the stage
select.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from edgepack import engines
from edgepack.artifacts import Artifact, DataArtifact, ExportArtifact, LedgerRow, ModelArtifact, PrunedArtifact
from edgepack.datasets.suited import check_built, read_further_texts
from edgepack.errors import EdgepackError, UsageError
from edgepack.order import OF_A_TARGET, STAGES, Choice
from edgepack.outcome import Build, Delivery, Failure, Made, Part, model_ledger
from edgepack.paddle_ml import checkpoint, environment
from edgepack.progress import Progress
from edgepack.recipe.model import Candidate, Recipe
from edgepack.steps import Steps
from edgepack.targets import wheels
from edgepack.targets.profiles import profile_for
from edgepack.workspace import Key, Result, Workspace

A = TypeVar("A", bound=Artifact)
_TRAININGS: Final = ("teacher", "student")  # stages and sections of the recipe


class Listener(Progress, Protocol):
    """A progress that also hears where a build is."""

    def stage(self, name: str, index: int, total: int, cached: bool) -> None:
        """A stage starts, or its result was found in the workspace."""

    def stage_done(self, name: str, seconds: float) -> None:
        """The stage that started last has its result."""


def stages_of(recipe: Recipe) -> list[str]:
    """The stages that a build of `recipe` goes through, those of every candidate and target one after the other."""
    times = dict.fromkeys(STAGES, 1) | {"student": len(recipe.students), "select": min(len(recipe.candidates), 1)}
    times["teacher"] = 0 if recipe.teacher is None else 1
    times["prune"] = sum(student.pruning is not None for student in recipe.students)
    once = [stage for stage in STAGES if stage not in OF_A_TARGET for _ in range(times[stage])]
    return [*once, *(OF_A_TARGET * len(recipe.targets))]


def check_choice(recipe: Recipe, choice: Choice) -> None:
    """Refuse what a build of `recipe` cannot be asked for.

    Raises:
        UsageError: a stage that this recipe does not have.
    """
    stages = list(dict.fromkeys(stages_of(recipe)))
    for stage in (choice.until, choice.start):
        if stage is not None and stage not in stages:
            raise UsageError(f"this recipe has no stage {stage}", fix=f"name one of {', '.join(stages)}")


def run(recipe: Recipe, workspace: Workspace, listener: Listener, choice: Choice = Choice()) -> Build | Part:  # noqa: B008
    """Build `recipe`, taking from the workspace whatever is already there.

    Returns:
        Everything that was made; a `Part` when `choice` ends the build before its gates.

    Raises:
        EdgepackError: naming the stage that failed. A missed gate does not raise: its verdict is in the result.
        UsageError: `choice` names a stage that this recipe does not have.
    """
    check_choice(recipe, choice)
    checkpoint.interval_seconds()

    def before_training(rows: DataArtifact) -> None:
        for finding in check_built(rows, recipe):
            listener.line(f"warning: {finding.reason}\n    fix: {finding.fix}")
        read_further_texts(recipe, lambda: rows.read("dev") + rows.read("test"))
        _check_environment(recipe, listener)

    step = _Step(workspace, listener, stages_of(recipe), choice, lambda stage: _check_device(recipe, choice, stage))
    untrained: list[Failure] = []

    def leave_out(failure: Failure) -> None:
        untrained.append(failure)
        listener.line(f"warning: this candidate is left out: {failure.error.what}")

    try:
        with workspace.in_use():
            steps = Steps(recipe, workspace, listener, step, keep_going=choice.keep_going)
            return replace(walk(recipe, steps, choice, before_training, leave_out), untrained=tuple(untrained))
    except EndOfPart:
        return Part(recipe, tuple(step.made), tuple(untrained))


def walk(
    recipe: Recipe,
    steps: Steps,
    choice: Choice,
    before_training: Callable[[DataArtifact], None],
    leave_out: Callable[[Failure], None] = lambda failure: None,
) -> Build:
    """Go through the stages of `recipe` in order, handing each the results that it works on.

    After a candidate was chosen, its recipe is the one that is built. `leave_out` hears of those that could not be
    trained, when the build was told to keep going.
    """
    rows = steps.data()
    before_training(rows.artifact)
    taught_by = steps.teacher(rows) if recipe.teacher is not None else None
    selection = None
    if recipe.candidates:
        learners, smaller = _candidates(recipe, steps, rows, taught_by, choice, leave_out)
        left_out = [candidate.name for candidate in recipe.candidates if candidate.name not in learners]
        selection = steps.select({**learners, **smaller}, left_out).artifact
        learner, pruned = learners[selection.chosen], smaller.get(selection.chosen)
        (chosen,) = (candidate for candidate in recipe.candidates if candidate.name == selection.chosen)
        recipe, steps = chosen.recipe, steps.of(chosen)
    else:
        learner = steps.student(rows, taught_by)
        pruned = steps.prune(rows, learner) if recipe.student.pruning is not None else None
    going_on: Result[ModelArtifact] = pruned or learner
    scales = steps.quantize(rows, going_on)
    exported = steps.export(rows, going_on, scales)
    models = (taught_by.artifact if taught_by else None, learner.artifact, pruned.artifact if pruned else None)
    ledger = tuple(row.timeless() for row in model_ledger(*models, exported.artifact))
    deliveries, failures = _targets(recipe, steps, rows, exported, ledger, choice)
    teacher_model, student_model, pruned_model = models
    return Build(
        recipe,
        rows.artifact,
        teacher_model,
        student_model,
        scales.artifact,
        exported.artifact,
        deliveries,
        failures,
        selection,
        pruned=pruned_model,
    )


def _candidates(
    recipe: Recipe,
    steps: Steps,
    rows: Result[DataArtifact],
    taught_by: Result[ModelArtifact] | None,
    choice: Choice,
    leave_out: Callable[[Failure], None],
) -> tuple[dict[str, Result[ModelArtifact]], dict[str, Result[PrunedArtifact]]]:
    """The students of all candidates, by name, and as they are pruned those that are to be.

    Raises:
        EdgepackError: one could not be trained, or with `keep_going` none could.
    """
    failed: list[EdgepackError] = []

    def each(candidates: Iterable[Candidate], make: Callable[[Candidate], Result[A]]) -> dict[str, Result[A]]:
        made: dict[str, Result[A]] = {}
        unknown: ToRun | None = None
        for candidate in candidates:
            try:
                made[candidate.name] = make(candidate)
            except ToRun as missing:  # a plan wants to know of all of them
                unknown = missing
            except EdgepackError as error:
                candidate.own(error)
                if not choice.keep_going:
                    raise
                failed.append(error)
                leave_out(Failure(candidate.name, error))
        if unknown is not None:
            raise unknown
        return made

    trained = each(recipe.candidates, lambda one: steps.of(one).student(rows, taught_by))
    if choice.until == "student" and trained:
        raise EndOfPart
    to_prune = [one for one in recipe.candidates if one.recipe.student.pruning is not None and one.name in trained]
    pruned = each(to_prune, lambda one: steps.of(one).prune(rows, trained[one.name]))
    for candidate in to_prune:
        if candidate.name not in pruned:
            del trained[candidate.name]
    if not trained:
        raise failed[0]
    if choice.until == "prune":
        raise EndOfPart
    return trained, pruned


def _targets(
    recipe: Recipe,
    steps: Steps,
    rows: Result[DataArtifact],
    exported: Result[ExportArtifact],
    ledger: tuple[LedgerRow, ...],
    choice: Choice,
) -> tuple[tuple[Delivery, ...], tuple[Failure, ...]]:
    """A bundle for every target and what its gate says; and the targets that failed, if the build is to keep going."""
    deliveries: list[Delivery] = []
    failures: list[Failure] = []
    for target in recipe.targets:
        try:
            packed = steps.bundle(target, rows, exported, ledger)
            if choice.until != "bundle":
                deliveries.append(Delivery(packed.artifact, steps.gate(packed, exported).artifact))
        except EdgepackError as error:
            if not choice.keep_going:
                raise
            failures.append(Failure(target, error))
    if choice.until == "bundle":
        raise EndOfPart
    return tuple(deliveries), tuple(failures)


def _check_environment(recipe: Recipe, listener: Listener) -> None:
    """What is not installed, and what a target lacks, shows now and not after hours of training."""
    environment.versions()
    engines.require_installed(recipe.engine)
    for target in recipe.targets:
        for engine in engines.wanted(recipe.engine):
            wheels.fetch(profile_for(target), engine.name, wheels.default_cache(), listener)


def _check_device(recipe: Recipe, choice: Choice, stage: str) -> None:
    """Before a training, that every GPU that it or one to come asks for can be used.

    Raises:
        EnvironmentUnfitError: naming the key that asks for it.
    """
    to_come = _TRAININGS[_TRAININGS.index(stage) :] if stage in _TRAININGS else ()
    if choice.until in to_come:
        to_come = to_come[: to_come.index(choice.until) + 1]
    sections = {"teacher": (recipe.teacher,), "student": recipe.students}
    asked = ((role, section.device) for role in to_come for section in sections[role] if section is not None)
    wanted = list(dict.fromkeys(asked))
    if not any(device.startswith("gpu") for _, device in wanted):
        return  # importing Paddle takes seconds, and nothing can be wrong
    environment.start()
    from edgepack.paddle_ml import device

    for role, place in wanted:
        device.require(place, f"{role}.device")


class ToRun(Exception):
    """A plan finds no result here, and what comes after it cannot be known."""


class EndOfPart(Exception):
    """The last stage that was asked for has its result."""


class _Step:
    """Makes one stage's result, or finds it in the workspace, and tells the listener which."""

    def __init__(
        self,
        workspace: Workspace,
        listener: Listener,
        stages: list[str],
        choice: Choice,
        before: Callable[[str], None],
    ) -> None:
        self._workspace = workspace
        self._listener = listener
        self._stages = stages
        self._choice = choice
        self._before = before
        self._begun = 0
        self._new: set[Key] = set()
        self.made: list[Made] = []

    def __call__(self, kind: type[A], key: Key, make: Callable[[Path], A], candidate: str | None = None) -> Result[A]:
        self._begun += 1
        again = key.stage in self._choice.again and key not in self._new  # candidates may share a training
        found = None if again else self._workspace.load(kind, key)
        name = key.stage if candidate is None else f"{key.stage} {candidate}"
        self._listener.stage(name, self._begun, len(self._stages), cached=found is not None)
        if found is None:
            if not again and self._workspace.is_damaged(key):
                self._listener.line("the stored result does not match its seal any more: it is made anew")
            started = time.monotonic()
            with self._workspace.making(key, self._listener.line):
                # Another build may have made it while this one waited.
                found = None if again else self._workspace.load(kind, key)
                if found is not None:
                    self._listener.line("another build has made it meanwhile: it is taken up")
                else:
                    self._before(key.stage)
                    found = self._workspace.build(key, make)
                    self._new.add(key)
            self._listener.stage_done(key.stage, time.monotonic() - started)
        self.made.append(Made(key.stage, found.artifact, candidate))
        # What runs several times ends where all of it is there, in `walk`.
        if key.stage == self._choice.until and key.stage not in OF_A_TARGET and self._stages.count(key.stage) == 1:
            raise EndOfPart
        return found
