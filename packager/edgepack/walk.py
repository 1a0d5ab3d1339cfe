"""The stages of a recipe in order, each handed the results that it works on, whoever makes or finds them.

data, teacher, student, narrow, prune, quantize, export, then bundle and gate for each target. A recipe with `search`
goes from the student to the export with each of its candidates, and then comes the stage select.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgepack.artifacts import DataArtifact, ExportArtifact, LedgerRow, ModelArtifact
from edgepack.errors import EdgepackError
from edgepack.order import Choice
from edgepack.outcome import Build, Delivery, Failure, model_ledger
from edgepack.recipe.model import Recipe
from edgepack.steps import Chain, Steps, ToRun
from edgepack.workspace import Result


class EndOfPart(Exception):
    """The last stage that was asked for has its result."""


def _nothing(*said: object) -> None:
    """Whoever walks a recipe need not listen."""


@dataclass(frozen=True)
class Hooks:
    """What a walk calls on its way.

    `before_training` has the rows; `leave_out` hears of candidates that failed when the build was told to keep going,
    `put_off` of the names of those for which there was no time. `spent` tells the seconds that results took so far.
    """

    before_training: Callable[[DataArtifact], None] = _nothing
    leave_out: Callable[[Failure], None] = _nothing
    put_off: Callable[[str], None] = _nothing
    spent: Callable[[], float] = lambda: 0.0


def walk(recipe: Recipe, steps: Steps, choice: Choice, hooks: Hooks = Hooks()) -> Build:
    """Go through the stages of `recipe` in order, handing each the results that it works on.

    After a candidate was chosen, its recipe is the one that is built.
    """
    rows = steps.data()
    hooks.before_training(rows.artifact)
    taught_by = steps.teacher(rows) if recipe.teacher is not None else None
    selection = None
    if recipe.candidates:
        chains, untried = _candidates(recipe, steps, rows, taught_by, choice, hooks)
        left_out = [one.name for one in recipe.candidates if one.name not in chains and one.name not in untried]
        selection = steps.select(rows, chains, left_out, untried).artifact
        chain = chains[selection.chosen]
        (chosen,) = (candidate for candidate in recipe.candidates if candidate.name == selection.chosen)
        recipe, steps = chosen.recipe, steps.of(chosen)
    else:
        chain = _chain(recipe, steps, rows, taught_by)
    teacher_model, student_model = taught_by.artifact if taught_by else None, chain.learner.artifact
    narrowed_model = chain.narrowed.artifact if chain.narrowed else None
    pruned_model, exported = chain.pruned.artifact if chain.pruned else None, chain.exported.artifact
    metric = recipe.gates.metric
    whole = model_ledger(teacher_model, student_model, narrowed_model, pruned_model, exported, metric)
    ledger = tuple(row.timeless() for row in whole)
    deliveries, failures = _targets(recipe, steps, rows, chain.exported, ledger, choice)
    return Build(
        recipe,
        rows.artifact,
        teacher_model,
        student_model,
        chain.scales.artifact,
        exported,
        deliveries,
        failures,
        selection,
        narrowed=narrowed_model,
        pruned=pruned_model,
    )


def _chain(recipe: Recipe, steps: Steps, rows: Result[DataArtifact], taught_by: Result[ModelArtifact] | None) -> Chain:
    """One student, as far as what would ship."""
    learner = steps.student(rows, taught_by)
    narrowed = steps.narrow(rows, taught_by, learner) if recipe.student.is_narrowed else None
    trained: Result[ModelArtifact] = narrowed or learner
    pruned = steps.prune(rows, trained) if recipe.student.pruning is not None else None
    going_on: Result[ModelArtifact] = pruned or trained
    scales = steps.quantize(rows, going_on)
    return Chain(learner, narrowed, pruned, scales, steps.export(rows, going_on, scales))


def _candidates(
    recipe: Recipe,
    steps: Steps,
    rows: Result[DataArtifact],
    taught_by: Result[ModelArtifact] | None,
    choice: Choice,
    hooks: Hooks,
) -> tuple[dict[str, Chain], list[str]]:
    """The candidates that were built, by name, and the names of those for which there was no time.

    What is there already takes no time; at least one candidate is built.

    Raises:
        EdgepackError: one failed, or with `keep_going` all did.
        EndOfPart: the build ends before there is anything to compare.
    """
    chains: dict[str, Chain] = {}
    untried: list[str] = []
    failed: list[EdgepackError] = []
    ends: list[Exception] = []  # a plan wants to know of all candidates, and all end where the build is told to
    out_of_time = _out_of_time(recipe, hooks)
    for candidate in recipe.candidates:
        over = out_of_time() and bool(chains or ends)
        one = steps.of(candidate, only_found=over)
        try:
            chains[candidate.name] = _chain(candidate.recipe, one, rows, taught_by)
        except EndOfPart as end:
            ends.append(end)
        except ToRun as missing:
            if over:
                untried.append(candidate.name)
                hooks.put_off(candidate.name)
            else:
                ends.append(missing)
        except EdgepackError as error:
            candidate.own(error)
            if not choice.keep_going:
                raise
            failed.append(error)
            hooks.leave_out(Failure(candidate.name, error))
    if ends:
        raise ends[0]
    if not chains:
        raise failed[0]
    return chains, untried


def _out_of_time(recipe: Recipe, hooks: Hooks) -> Callable[[], bool]:
    """Tells whether the minutes of a search have passed since now."""
    assert recipe.search is not None, "what has candidates has a search"
    seconds = float("inf") if recipe.search.minutes is None else 60 * recipe.search.minutes
    begun = hooks.spent()
    return lambda: hooks.spent() - begun >= seconds


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
                deliveries.append(Delivery(packed.artifact, steps.gate(packed, exported)))
        except EdgepackError as error:
            if not choice.keep_going:
                raise
            failures.append(Failure(target, error))
    if choice.until == "bundle":
        raise EndOfPart
    return tuple(deliveries), tuple(failures)
