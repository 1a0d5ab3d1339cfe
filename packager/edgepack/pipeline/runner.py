"""Build a recipe: run its stage calls in order, and reuse every result that the workspace holds."""

from __future__ import annotations

from time import monotonic
from typing import Any, Protocol, TypeVar

from edgepack.artifacts import Artifact, GateArtifact
from edgepack.errors import EdgepackError
from edgepack.pipeline import preflight, reasons
from edgepack.pipeline.calls import Calls, Results, StageCall, Work
from edgepack.pipeline.options import CANDIDATE_STAGES, BuildOptions
from edgepack.pipeline.stage_calls import StageCalls, calls_for
from edgepack.pipeline.workspace import Key, StageResult, Workspace
from edgepack.progress import Progress
from edgepack.recipe.model import AnyRecipe
from edgepack.results import Build, Delivery, Failure, Made, NotRunHere, Part, with_candidate
from edgepack.targets.context import BuildContext
from edgepack.training import checkpoint

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
) -> Build | Part:
    """Build `recipe`, reusing results of the workspace.

    Returns:
        All artifacts; a `Part` if `options` end the build before its gates. A missed gate is a result, not an error.

    Raises:
        EdgepackError: a stage failed; the message names it.
        UsageError: `options` name a stage that this recipe does not have.
    """
    calls = calls_for(recipe, context or BuildContext())
    preflight.check_options(calls, options)
    checkpoint.interval_seconds()
    with workspace.in_use():
        return _Run(calls, workspace, listener, options).run()


class _Run:
    """One build. Calls without inputs, because a candidate failed or was postponed, are skipped."""

    def __init__(self, calls: Calls, workspace: Workspace, listener: Listener, options: BuildOptions) -> None:
        self._calls = calls
        self._workspace = workspace
        self._listener = listener
        self._options = options
        self._results = Results()
        self._made: list[Made] = []
        self._new: set[Key] = set()
        self._not_run: dict[str, NotRunHere] = {}
        self._left_out = list(options.left_out)  # candidates
        self._failures: list[Failure] = []  # targets
        self._begun: set[str] = set()  # candidates that have a new result
        self._search_seconds = 0.0

    def run(self) -> Build | Part:
        """Run every call that the options include and that has its inputs."""
        calls, results = self._calls, self._results
        for note in calls.recipe.notes:
            self._listener.line(note)
        failed = {failure.name for failure in self._options.left_out}
        for number, call in enumerate(calls, start=1):
            if self._options.ends_before(call.stage) or not results.has_all(call.needs):
                continue
            if failed and failed.issuperset(calls.candidates_of(call) or ("",)):
                continue
            if call.alternatives and not any(alternative in results for alternative in call.alternatives):
                continue
            made = len(self._new)
            try:
                self._run_call(call, number)
            except EdgepackError as error:
                self._fail(call, error)
            if call is calls.inputs and not self._options.ends_before(
                "bundle" if call.stage == "examples" else "teacher"
            ):
                cached = len(self._new) == made
                preflight.check_inputs(calls, results[call].artifact, self._listener, cached=cached)
        if self._options.ends_before("gate"):
            return Part(calls.recipe, tuple(self._made), tuple(self._left_out), tuple(self._failures))
        return calls.build(results, self._deliveries(), self._failures, self._left_out)

    def _run_call(self, call: StageCall[Any], number: int) -> None:
        work = call.work(self._results)
        if isinstance(work, NotRunHere):
            assert call.target is not None, "only gates may not run here"
            self._listener.line(f"gate of {call.target}: not run here: {work.why}")
            self._not_run[call.target] = work
            return
        # Two calls may have the same key (trainings on two GPUs): run it again once.
        again = call.stage in self._options.again and work.key not in self._new
        found = None if again else self._workspace.load(call.kind, work.key)
        if found is None and self._is_out_of_time(call):
            self._postpone(call)
            return
        why = "" if found is not None else self._why(work.key, again=again)
        self._listener.stage(self._calls.name(call), number, len(self._calls), cached=found is not None, why=why)
        if found is None:
            found = self._make(call, work, again=again)
        self._results[call] = found
        self._made.append(Made(call.stage, found.artifact, self._calls.owners(call)))
        if isinstance(found.artifact, GateArtifact) and found.artifact.verdict != "pass":
            self._workspace.unseal(found.artifact.folder)  # the next build measures again

    def _why(self, key: Key, *, again: bool) -> str:
        """Why a stage runs whose result is not cached; empty if no earlier build ran it."""
        own = [self._workspace.folder(new) for new in self._new]  # of other candidates and targets
        earlier = [one for one in self._workspace.earlier(key.stage) if one.folder not in own]
        closest = reasons.closest(key.stage, key.made_of, earlier)
        if closest is None and not self._workspace.is_damaged(key):
            return ""
        return reasons.why(key, closest, self._workspace, self._options.forced_by(key.stage) if again else None)

    def _make(self, call: StageCall[A], work: Work[A], *, again: bool) -> StageResult[A]:
        started = monotonic()
        try:
            with self._workspace.locked(work.key, self._listener.line):
                found = None if again else self._workspace.load(call.kind, work.key)
                if found is not None:
                    self._listener.line("another build made this result in the meantime; reusing it")
                else:
                    calls, trainings = self._calls, preflight.TRAININGS
                    if (
                        isinstance(calls, StageCalls)
                        and call.stage in trainings
                        and not any(key.stage in trainings for key in self._new)
                    ):
                        preflight.check_training(call.stage, calls, self._options, self._listener)
                    folder = self._workspace.checkpoint(work.key)
                    found = self._workspace.build(work.key, lambda out: work.run(out, folder, self._listener))
                    self._new.add(work.key)
        finally:
            seconds = monotonic() - started
            if call.stage in CANDIDATE_STAGES:
                self._search_seconds += seconds
                self._begun.update(self._calls.candidates_of(call)[:1])
        self._listener.stage_done(call.stage, seconds)
        return found

    def _is_out_of_time(self, call: StageCall[Any]) -> bool:
        """Whether `call` would begin a candidate after `search.minutes`. One candidate is always built."""
        if not isinstance(self._calls, StageCalls):
            return False
        search, candidates = self._calls.trained.search, self._calls.candidates_of(call)
        if search is None or search.minutes is None or not candidates or candidates[0] in self._begun:
            return False
        return self._search_seconds >= 60 * search.minutes and any(
            self._results.has_all(step for step in chain.calls if not self._options.ends_before(step.stage))
            for chain in self._calls.chains.values()
        )

    def _postpone(self, call: StageCall[Any]) -> None:
        for name in self._calls.candidates_of(call):
            self._results.untried.append(name)
            self._listener.line(f"{name} is not tried: search.minutes have passed; the next build continues with it")

    def _fail(self, call: StageCall[Any], error: EdgepackError) -> None:
        """Record the failure of a target or of candidates; raise it unless the build keeps going with others."""
        if call.target is not None and self._options.keep_going:
            self._failures.append(Failure(call.target, error))
            return
        failures = [Failure(name, with_candidate(error, name)) for name in self._calls.candidates_of(call)]
        if not failures:
            raise error
        self._left_out += failures
        if not self._options.keep_going or len(self._left_out) == len(self._calls.candidates):
            raise self._left_out[0].error from error
        for failure in failures:
            self._listener.line(f"warning: this candidate is left out: {failure.error.what}")

    def _deliveries(self) -> list[Delivery]:
        """The bundle of each target, with its receipt or the reason why it has none."""
        found = []
        for target, gate in self._calls.gates.items():
            packed = self._calls.bundles[target]
            if target in self._not_run:
                found.append(Delivery(self._results[packed].artifact, self._not_run[target]))
            elif gate in self._results:
                made, judged = self._results[packed].artifact, self._results[gate].artifact
                found.append(Delivery(made, judged, self._options.strict))
        return found
