"""The plan of a build: every resolved value of the recipe, and which stages are cached or would run."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from edgepack.artifacts import DataArtifact
from edgepack.build import downloads, preflight, reasons
from edgepack.build.downloads import Downloads
from edgepack.build.options import BuildOptions
from edgepack.build.planned_trainings import Estimate, training_estimate
from edgepack.build.reasons import Reason
from edgepack.build.recipe_stages import RecipeStages, stages_of
from edgepack.build.workspace import Earlier, Workspace
from edgepack.messages import joined, message
from edgepack.packages import wheels
from edgepack.packages.target_spec import target_specs
from edgepack.recipe.model import AnyRecipe, LinearRecipe, Recipe
from edgepack.recipe.section import Section
from edgepack.results import NOT_RUN_HERE
from edgepack.stages.data import DataStage
from edgepack.stages.stage import Context, Key, PlannedRows, Stage
from edgepack.stages.train import TrainingStage
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
    targets = context or BuildContext()
    stages = stages_of(recipe, targets)
    preflight.check_options(stages, options)
    checkpoint.interval_seconds()
    if preflight.is_due(stages, options):
        for target in recipe.targets:
            for spec in target_specs(recipe, targets.profile(target)):
                wheels.wanted(spec, targets)
    planner = _Planner(stages, workspace, options, targets)
    planned = tuple(planner.planned(stage) for stage in stages)
    search = recipe.search if isinstance(recipe, Recipe) else None
    left_out = tuple(search.over) if search else ()
    if isinstance(recipe, LinearRecipe):
        left_out = (*recipe.UNUSED, *recipe.REFUSED)
    values = tuple(_values(recipe, "", left_out))
    return Plan(recipe, values, planned, downloads.missing(recipe, targets))


class _Planner:
    """Plans the stages of a recipe, which it takes in their order.

    A stage after the first one to run has no key. It is compared as if that one gave an earlier result again: so a
    change of its own section shows.
    """

    def __init__(
        self, stages: RecipeStages, workspace: Workspace, options: BuildOptions, targets: BuildContext
    ) -> None:
        self._stages = stages
        self._workspace = workspace
        self._options = options
        self._ctx = Context(targets)  # with cached results
        self._assumed = Context(targets)  # and with earlier results in place of those to come
        self._earlier = functools.cache(workspace.earlier)
        self._rows = PlannedRows()

    def planned(self, stage: Stage[Any]) -> PlannedStage:
        """The plan of the next stage."""
        options = self._options
        lacking = stage.lacking(self._ctx)
        key = _key(stage, self._ctx) if lacking is None else None
        found = None if key is None or stage.name in options.again else self._workspace.load(stage.kind, key)
        if found is not None:
            self._ctx, self._assumed = (ctx.with_result(stage, found) for ctx in (self._ctx, self._assumed))
        recipe = self._stages.recipe_of(stage)
        if isinstance(stage, DataStage) and isinstance(recipe, Recipe):
            self._rows = stage.planned_rows(self._ctx.artifact(stage) if found is not None else None)
        folder, about = None if found is None else found.artifact.folder, stage.about(self._rows)
        planned = PlannedStage(stage.name, stage.target, "cached", folder, about, self._stages.labels.get(stage))
        if options.ends_before(stage.name):
            return replace(planned, state="not asked for")
        if lacking is not None:
            return replace(planned, state=NOT_RUN_HERE, why=lacking.why)
        return planned if found is not None else self._to_run(stage, key, planned)

    def _to_run(self, stage: Stage[Any], key: Key | None, planned: PlannedStage) -> PlannedStage:
        """The plan of a stage without a usable result. `key` is None until what it needs is there."""
        earlier, assumed = self._earlier(stage.name), key
        if key is None and stage.target is None:  # nothing of a bundle or a gate is known before its inputs
            assumed = _key(stage, self._assumed)
        closest = None if assumed is None else reasons.closest(type(stage), assumed.made_of, earlier)
        forced = self._options.forced_by(stage.name)
        if forced is not None:
            why = forced
        elif key is None:
            why = self._waiting(stage, assumed, closest)
        else:
            key, counted = self._with_rows(stage, key, closest)
            why = reasons.why(type(stage), key, counted, self._workspace)
        if isinstance(stage, TrainingStage):
            made_of = None if assumed is None else assumed.made_of
            estimate = training_estimate(stage, self._rows, made_of, earlier, self._workspace)
        else:
            last = closest or next(iter(earlier), None)
            estimate = None if last is None else Estimate(last.record.seconds, f"an earlier {stage.name}")
        # A choice may be of a candidate that this recipe does not have: nothing can be assumed of it.
        result = None if closest is None or stage.any_of else self._workspace.peek(stage.kind, closest)
        if result is not None:
            self._assumed = self._assumed.with_result(stage, result)
        return replace(planned, state="to run", why=why, estimate=estimate)

    def _waiting(self, stage: Stage[Any], assumed: Key | None, closest: Earlier | None) -> str:
        """Why a stage runs whose inputs are still to be made: the stage that it waits for, and its own changes."""
        if not self._earlier(stage.name):
            return message("reason.none")
        waits = next(need for need in (*stage.needs, *stage.any_of) if not self._ctx.has(need))
        own: list[Reason] = []
        if assumed is not None and closest is not None:
            changes = reasons.changes(type(stage), closest.record.made_of, assumed.made_of)
            own = [change for change in changes if change.own]
        return joined(message("reason.after", stage=waits.name), reasons.in_words(own) if own else "")

    def _with_rows(self, stage: Stage[Any], key: Key, closest: Earlier | None) -> tuple[Key, Earlier | None]:
        """Both with the rows of data files, which a key does not hold: this plan and the earlier build counted them."""
        earlier = self._workspace.peek(DataArtifact, closest) if closest and stage.kind is DataArtifact else None
        if closest is None or earlier is None:
            return key, closest
        before = reasons.with_rows(closest.record.made_of, earlier.artifact.rows)
        after = reasons.with_rows(key.made_of, self._rows.counts)
        return replace(key, made_of=after), replace(closest, record=replace(closest.record, made_of=before))


def _key(stage: Stage[Any], ctx: Context) -> Key | None:
    """The key of a stage; None if one of its inputs has no result."""
    return stage.key(ctx) if ctx.has(*stage.needs, *stage.any_of) else None


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
            yield from (Value(f"{key}.{below}", _listed(inner), given) for below, inner in value.items())
        elif isinstance(value, tuple) and value and all(isinstance(item, Section) for item in value):
            for number, item in enumerate(value):
                yield from _values(item, f"{key}[{number}].", left_out)
        else:
            yield Value(key, _listed(value), given)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
