"""The plan of a build: every resolved value of the recipe, and which stages are cached or would run."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from edgepack.artifacts import DataArtifact
from edgepack.bundle import interpreters, wheels
from edgepack.pipeline import downloads, preflight, reasons
from edgepack.pipeline.calls import Calls, Results, StageCall, Work, not_gated_here
from edgepack.pipeline.downloads import Downloads
from edgepack.pipeline.options import BuildOptions
from edgepack.pipeline.planned_trainings import Estimate, PlannedTraining, Rows, planned_rows, planned_training
from edgepack.pipeline.reasons import Reason
from edgepack.pipeline.stage_calls import StageCalls, calls_for
from edgepack.pipeline.workspace import Earlier, Key, Workspace
from edgepack.recipe import linear_only
from edgepack.recipe.model import AnyRecipe, LinearRecipe, Recipe
from edgepack.recipe.section import Section
from edgepack.recipe.training import Student
from edgepack.results import NotRunHere
from edgepack.targets.context import BuildContext
from edgepack.training import checkpoint

State = Literal["cached", "to run", "not asked for", "not run here"]


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a planned build.

    Attributes:
        folder: of a cached result.
        about: the work in words.
        candidate: the searched values that its candidates share.
        why: why it runs, or why it does not run here; empty for a cached stage.
        estimate: its time if it runs; None if nothing is known of it.
    """

    stage: str
    target: str | None
    state: State
    folder: Path | None
    about: str
    candidate: str | None = None
    why: str = ""
    estimate: Estimate | None = None


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

    @property
    def to_run(self) -> tuple[PlannedStage, ...]:
        """The stages that run."""
        return tuple(stage for stage in self.stages if stage.state == "to run")

    @property
    def seconds(self) -> float:
        """Estimated seconds of the stages that run, without those of which nothing is known."""
        return sum(stage.estimate.seconds for stage in self.to_run if stage.estimate is not None)


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
                    engine=recipe.needs_engine,
                    packages=recipe.requirements,
                    python=interpreters.python_of_packages(recipe, profile),
                )
    planner = _Planner(calls, workspace, options)
    stages = tuple(planner.planned(call) for call in calls)
    search = calls.trained.search if isinstance(calls, StageCalls) else None
    left_out = linear_only.KEYS if isinstance(recipe, LinearRecipe) else tuple(search.over) if search else ()
    values = tuple(_values(recipe, "", left_out))
    return Plan(recipe, values, stages, downloads.missing(recipe, calls.context))


class _Planner:
    """Plans the calls of a recipe, which it takes in their order.

    A call after the first one to run has no key. It is compared as if that one gave an earlier result again: so a
    change of its own section shows.
    """

    def __init__(self, calls: Calls, workspace: Workspace, options: BuildOptions) -> None:
        self._calls = calls
        self._workspace = workspace
        self._options = options
        self._results = Results()  # cached
        self._assumed = Results()  # and earlier results, in place of those to come
        self._earlier = functools.cache(workspace.earlier)
        self._rows = Rows({}, {})

    def planned(self, call: StageCall[Any]) -> PlannedStage:
        """The plan of the next call."""
        calls, stage, options = self._calls, call.stage, self._options
        work = _work(call, self._results)
        key = work.key if isinstance(work, Work) else None
        found = None if key is None or stage in options.again else self._workspace.load(call.kind, key)
        if found is not None:
            self._results[call] = self._assumed[call] = found
        if isinstance(calls, StageCalls) and call is calls.data:
            self._rows = planned_rows(calls.trained, None if found is None else found.artifact)
        recipe = self._recipe(call)
        training = None if recipe is None else planned_training(stage, recipe, self._rows)
        about = "" if training is None else training.about
        if recipe is not None and stage == "prune":
            about = _pruning(recipe.student)
        folder = None if found is None else found.artifact.folder
        planned = PlannedStage(stage, call.target, "cached", folder, about, calls.label(call) or None)
        lacking = work if isinstance(work, NotRunHere) else None
        if lacking is None and stage == "gate" and call.target is not None:
            lacking = not_gated_here(calls.context.profile(call.target))
        if options.ends_before(stage):
            return replace(planned, state="not asked for")
        if lacking is not None:
            return replace(planned, state="not run here", why=lacking.why)
        return planned if found is not None else self._to_run(call, key, planned, training)

    def _to_run(
        self, call: StageCall[Any], key: Key | None, planned: PlannedStage, training: PlannedTraining | None
    ) -> PlannedStage:
        """The plan of a call without a usable result. `key` is None until what it needs is there."""
        earlier, assumed = self._earlier(call.stage), key
        if key is None and call.target is None:  # nothing of a bundle or a gate is known before its inputs
            work = _work(call, self._assumed)
            assumed = work.key if isinstance(work, Work) else None
        closest = None if assumed is None else reasons.closest(call.stage, assumed.made_of, earlier)
        forced = self._options.forced_by(call.stage)
        if forced is not None:
            why = forced
        elif key is None:
            why = self._waiting(call, assumed, closest)
        else:
            key, counted = self._with_rows(call, key, closest)
            why = reasons.why(key, counted, self._workspace, None)
        if training is not None:
            estimate = training.estimate(None if assumed is None else assumed.made_of, earlier, self._workspace)
        else:
            last = closest or next(iter(earlier), None)
            estimate = None if last is None else Estimate(last.record.seconds, f"an earlier {call.stage}")
        # A choice may be of a candidate that this recipe does not have: nothing can be assumed of it.
        result = None if closest is None or call.alternatives else self._workspace.peek(call.kind, closest)
        if result is not None:
            self._assumed[call] = result
        return replace(planned, state="to run", why=why, estimate=estimate)

    def _waiting(self, call: StageCall[Any], assumed: Key | None, closest: Earlier | None) -> str:
        """Why a call runs whose inputs are still to be made: the stage that it waits for, and its own changes."""
        if not self._earlier(call.stage):
            return "no result yet"
        waits = next(need for need in (*call.needs, *call.alternatives) if need not in self._results)
        own: list[Reason] = []
        if assumed is not None and closest is not None:
            changes = reasons.changes(call.stage, closest.record.made_of, assumed.made_of)
            own = [change for change in changes if change.own]
        return "; ".join([f"after {waits.stage}", *([reasons.in_words(own)] if own else [])])

    def _with_rows(self, call: StageCall[Any], key: Key, closest: Earlier | None) -> tuple[Key, Earlier | None]:
        """Both with the rows of data files, which a key does not hold: this plan and the earlier build counted them."""
        earlier = (
            self._workspace.peek(DataArtifact, closest) if closest and issubclass(call.kind, DataArtifact) else None
        )
        if closest is None or earlier is None:
            return key, closest
        before = reasons.with_rows(closest.record.made_of, earlier.artifact.rows)
        after = reasons.with_rows(key.made_of, self._rows.counts)
        return replace(key, made_of=after), replace(closest, record=replace(closest.record, made_of=before))

    def _recipe(self, call: StageCall[Any]) -> Recipe | None:
        """The recipe with the values of the candidate of a call; None for a given model."""
        if not isinstance(self._calls, StageCalls):
            return None
        chains = self._calls.chains.values()
        return next((chain.recipe for chain in chains if call in chain.calls), self._calls.trained)


def _work(call: StageCall[Any], results: Results) -> Work[Any] | NotRunHere | None:
    """The work of a call; None if one of its inputs has no result."""
    return call.work(results) if results.has_all((*call.needs, *call.alternatives)) else None


def _pruning(student: Student) -> str:
    """The tokens that vocabulary pruning will keep."""
    pruning = student.pruning
    assert pruning is not None, "the stage exists only with `student.vocabulary: prune`"
    often = "" if pruning.min_count == 1 else f" at least {pruning.min_count} times"
    texts = "the training texts" + ("" if pruning.texts is None else f" and {Path(pruning.texts).name}")
    characters = ", and every Chinese character" if pruning.characters == "all" else ""
    return f"keeps the tokens that occur{often} in {texts}{characters}"


def _values(section: Section, above: str, left_out: Sequence[str]) -> Iterator[Value]:
    """The values of a section, without the keys that are `left_out`."""
    for name, field in type(section).model_fields.items():
        key = f"{above}{field.alias or name}"
        value, given = getattr(section, name), name in section.model_fields_set
        if key in left_out:
            continue
        if isinstance(value, Section):
            yield from _values(value, f"{key}.", left_out)
        elif isinstance(value, dict):
            yield from (Value(f"{key}.{below}", list(values), given) for below, values in value.items())
        elif isinstance(value, tuple) and value and all(isinstance(item, Section) for item in value):
            for number, item in enumerate(value):
                yield from _values(item, f"{key}[{number}].", left_out)
        else:
            yield Value(key, list(value) if isinstance(value, tuple) else value, given)
