"""Build a recipe: run its stages in order, and reuse every result that the workspace holds."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Any, Protocol, TypeVar

from edgepack.artifacts import Artifact, GateArtifact
from edgepack.build import preflight, reasons
from edgepack.build.options import BuildOptions
from edgepack.build.recipe_stages import RecipeStages, stages_of
from edgepack.build.workspace import Workspace
from edgepack.errors import EdgepackError
from edgepack.progress import Progress
from edgepack.recipe.model import AnyRecipe
from edgepack.results import Build, Failure, NotRunHere, StageArtifact, TargetResult, with_candidate
from edgepack.stages.stage import Context, Key, Stage, StageResult
from edgepack.stages.train import TrainingStage
from edgepack.targets.context import BuildContext
from edgepack.training import checkpoint
from edgepack_runtime.stats import intervals

A = TypeVar("A", bound=Artifact)


class Listener(Progress, Protocol):
    """A progress reporter that is notified of stages."""

    def stage(self, name: str, index: int, total: int, cached: bool, why: str = "") -> None:
        """A stage starts, or its result is cached. `index` counts from 1; `why` it runs again, if it ran before."""

    def stage_done(self, name: str, seconds: float) -> None:
        """The stage that started last has ended."""


def build(
    recipe: AnyRecipe,
    workspace: Workspace,
    listener: Listener,
    options: BuildOptions = BuildOptions(),  # noqa: B008 (frozen)
    context: BuildContext | None = None,
) -> Build:
    """Build `recipe`, reusing results of the workspace.

    Returns:
        All artifacts; with `ended_early` if `options` end the build before its gates. A missed gate is a result, not an
        error.

    Raises:
        EdgepackError: a stage failed; the message names it.
        UsageError: `options` name a stage that this recipe does not have.
    """
    targets = context or BuildContext()
    stages = stages_of(recipe, targets)
    preflight.check_options(stages, options)
    checkpoint.interval_seconds()
    with workspace.in_use():
        return _Run(stages, workspace, listener, options, targets).run()


class _Run:
    """One build. Stages without inputs, because a candidate failed, are skipped."""

    def __init__(
        self,
        stages: RecipeStages,
        workspace: Workspace,
        listener: Listener,
        options: BuildOptions,
        targets: BuildContext,
    ) -> None:
        self._stages = stages
        self._workspace = workspace
        self._listener = listener
        self._options = options
        self._ctx = Context(targets, listener)
        self._artifacts: list[StageArtifact] = []
        self._new: set[Key] = set()
        self._trains = False  # whether a training has begun
        self._not_run: dict[str, NotRunHere] = {}
        self._failed_candidates = list(options.failed_candidates)
        self._failed_targets: list[Failure] = []

    def run(self) -> Build:
        """Run every stage that the options include and that has its inputs."""
        stages, options = self._stages, self._options
        for note in stages.recipe.notes:
            self._listener.line(note)
        failed = {failure.name for failure in options.failed_candidates}
        numbered = list(stages)
        for number, stage in enumerate(numbered, start=1):
            if options.ends_before(stage.name) or not self._ctx.has(*stage.needs):
                continue
            if failed and failed.issuperset(stages.candidates_of(stage) or ("",)):
                continue
            if stage.any_of and not any(map(self._ctx.has, stage.any_of)):
                continue
            try:
                self._run_or_load(stage, number, len(numbered))
            except EdgepackError as error:
                self._fail(stage, error)
            if stage is numbered[0] and preflight.is_due(stages, options):
                cached = not self._new
                preflight.check_inputs(stages.recipe, self._ctx, stage, cached=cached)
        if options.ends_before("gate"):
            found = Build.until(stages.recipe, self._artifacts)
        else:
            found = replace(
                stages.shipment.build(self._ctx),
                stage_artifacts=tuple(self._artifacts),
                target_results=self._target_results(),
            )
        return replace(
            found, failed_targets=tuple(self._failed_targets), failed_candidates=tuple(self._failed_candidates)
        )

    def _run_or_load(self, stage: Stage[Any], number: int, total: int) -> None:
        lacking = stage.lacking(self._ctx)
        if lacking is not None:
            assert stage.target is not None, "only gates may not run here"
            self._listener.line(f"gate of {stage.target}: not run here: {lacking.why}")
            self._not_run[stage.target] = lacking
            return
        key = stage.key(self._ctx)
        # Two stages may have the same key (trainings on two GPUs): run it again once.
        again = stage.name in self._options.again and key not in self._new
        found = None if again else self._workspace.load(stage.kind, key)
        why = "" if found is not None else self._why(stage, key, again=again)
        self._listener.stage(self._stages.name(stage), number, total, cached=found is not None, why=why)
        if found is None:
            found = self._make(stage, key, again=again)
        self._ctx = self._ctx.with_result(stage, found)
        self._artifacts.append(StageArtifact(stage.name, found.artifact, self._stages.owners(stage)))
        if isinstance(found.artifact, GateArtifact) and found.artifact.verdict != intervals.PASS:
            self._workspace.unseal(found.artifact.folder)  # the next build measures again

    def _why(self, stage: Stage[Any], key: Key, *, again: bool) -> str:
        """Why a stage runs whose result is not cached; empty if no earlier build ran it."""
        own = [self._workspace.folder(new) for new in self._new]  # of other candidates and targets
        earlier = [one for one in self._workspace.earlier(stage.name) if one.folder not in own]
        closest = reasons.closest(type(stage), key.made_of, earlier)
        if closest is None and not self._workspace.is_damaged(key):
            return ""
        forced = self._options.forced_by(stage.name) if again else None
        return forced or reasons.why(type(stage), key, closest, self._workspace)

    def _make(self, stage: Stage[A], key: Key, *, again: bool) -> StageResult[Any]:
        started = monotonic()
        with self._workspace.locked(key, self._listener.line):
            found = None if again else self._workspace.load(stage.kind, key)
            if found is not None:
                self._listener.line("another build made this result in the meantime; reusing it")
            else:
                if isinstance(stage, TrainingStage) and not self._trains:
                    preflight.check_training(stage, self._stages, self._ctx, self._options)
                    self._trains = True
                ctx = replace(self._ctx, checkpoint=self._workspace.checkpoint(key))
                found = self._workspace.build(key, lambda out: stage.run(ctx, out))
                self._new.add(key)
        self._listener.stage_done(stage.name, monotonic() - started)
        return found

    def _fail(self, stage: Stage[Any], error: EdgepackError) -> None:
        """Record the failure of a target or of candidates; raise it unless the build keeps going with others."""
        if stage.target is not None and self._options.keep_going:
            self._failed_targets.append(Failure(stage.target, error))
            return
        failures = [Failure(name, with_candidate(error, name)) for name in self._stages.candidates_of(stage)]
        if not failures:
            raise error
        self._failed_candidates += failures
        if not self._options.keep_going or len(self._failed_candidates) == len(self._stages.chains):
            raise self._failed_candidates[0].error from error
        for failure in failures:
            self._listener.line(f"warning: this candidate is left out: {failure.error.what}")

    def _target_results(self) -> tuple[TargetResult, ...]:
        """The bundle of each target, with its receipt or the reason why it has none."""
        ctx, found = self._ctx, []
        for target, gate in self._stages.gates.items():
            if target in self._not_run:
                found.append(TargetResult(ctx.artifact(gate.bundle), self._not_run[target]))
            elif ctx.has(gate):
                found.append(TargetResult(ctx.artifact(gate.bundle), ctx.artifact(gate), self._options.strict))
        return tuple(found)
