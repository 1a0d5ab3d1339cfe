"""What a whole build made, and the loss ledger that tells what each step of it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    ModelArtifact,
    NarrowedArtifact,
    PrunedArtifact,
    ScalesArtifact,
    SelectArtifact,
    mebibytes,
)
from edgepack.errors import EdgepackError, RecipeInvalidError
from edgepack.recipe.model import Recipe
from edgepack.util.text import UNGATED, counted, verdict

Verdict = Literal["pass", "fail", "inconclusive", "not run here", "no gates"]
NOT_RUN_HERE: Final = "not run here"


@dataclass(frozen=True)
class NotRunHere:
    """Why a bundle cannot be gated on this machine, and what to type on its device."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class Delivery:
    """One target's bundle and what its gate said, where this machine could run it."""

    bundle: BundleArtifact
    gate: GateArtifact | NotRunHere

    @property
    def verdict(self) -> Verdict:
        """What is known of the bundle on its target."""
        if isinstance(self.gate, NotRunHere):
            return NOT_RUN_HERE
        return "no gates" if verdict(self.gate.receipt) == UNGATED else self.gate.verdict


@dataclass(frozen=True)
class Failure:
    """A target that could not be built or gated, or a candidate that could not be built, and why."""

    name: str
    error: EdgepackError


def of_candidate(error: EdgepackError, name: str) -> EdgepackError:
    """The same error, which says which candidate it is about."""
    what = f"{error.what} (candidate {name})"
    if isinstance(error, RecipeInvalidError):
        return RecipeInvalidError(what, why=error.why, fix=error.fix, findings=error.findings)
    return type(error)(what, why=error.why, fix=error.fix)


@dataclass(frozen=True)
class Made:
    """The result of one stage, with the names of the candidates that have it where others have another."""

    stage: str
    artifact: Artifact
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """What a build made that was told to end early, in the order it was made."""

    recipe: Recipe
    made: tuple[Made, ...]
    left_out: tuple[Failure, ...] = ()  # candidates, when the build was told to keep going
    failures: tuple[Failure, ...] = ()  # of targets, when the build was told to keep going

    @property
    def selection(self) -> SelectArtifact | None:
        """Which of several candidates was chosen, when the build came so far."""
        return next((one.artifact for one in self.made if isinstance(one.artifact, SelectArtifact)), None)

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """As much of the loss ledger as there is. Of several candidates it tells of the chosen one alone.

        It gives scores on the test rows, and nobody should choose by those.
        """
        chosen = self.selection.chosen if self.selection else None
        counted = [one for one in self.made if not one.candidates or chosen in one.candidates]
        models = [(one.stage, one.artifact) for one in counted if isinstance(one.artifact, ModelArtifact)]
        exported = next((one.artifact for one in counted if isinstance(one.artifact, ExportArtifact)), None)
        return _ledger(models, exported, self.recipe.gates.metric)


@dataclass(frozen=True)
class Build:
    """Everything a build made, in the order it was made. Of several candidates, `recipe` is that of the chosen one."""

    recipe: Recipe
    data: DataArtifact
    teacher: ModelArtifact | None
    student: ModelArtifact
    scales: ScalesArtifact
    export: ExportArtifact
    deliveries: tuple[Delivery, ...]
    failures: tuple[Failure, ...] = ()  # of targets, when the build was told to keep going
    selection: SelectArtifact | None = None
    left_out: tuple[Failure, ...] = ()  # candidates, when the build was told to keep going
    narrowed: NarrowedArtifact | None = None
    pruned: PrunedArtifact | None = None

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """The loss ledger from the float teacher to every target."""
        gates = (item.gate.ledger for item in self.deliveries if isinstance(item.gate, GateArtifact))
        return (*self._model_rows(self.export), *gates)

    def ledger_of(self, item: Delivery) -> tuple[LedgerRow, ...]:
        """The rows on the way to one target: not those of other targets, and not of files that do not ship to it."""
        exported = self.export.for_target(item.bundle.target)
        shipped = exported.shipped_model
        small = None if shipped is exported.float_model else shipped
        way = replace(exported, small_model=small, variations=())
        rows = self._model_rows(way)
        return (*rows, item.gate.ledger) if isinstance(item.gate, GateArtifact) else rows

    def _model_rows(self, exported: ExportArtifact) -> tuple[LedgerRow, ...]:
        every = {"teacher": self.teacher, "student": self.student, "narrow": self.narrowed, "prune": self.pruned}
        models = [(stage, model) for stage, model in every.items() if model is not None]
        return _ledger(models, exported, self.recipe.gates.metric)


def _ledger(
    models: Sequence[tuple[str, ModelArtifact]], exported: ExportArtifact | None, metric: str | None
) -> tuple[LedgerRow, ...]:
    """Rows of trained models by their stages, in order, and of the files exported from the last of them; all in the
    `metric` of the gates (`Gates.metric`).
    """
    rows = [_model(stage, model, metric) for stage, model in models]
    if exported is None:
        return tuple(rows)
    static = replace(exported.static_graph, score=rows[-1].score)  # the same weights, not measured again
    files = (*exported.models, *(one.model for one in exported.variations))
    return (*rows, static, *(file.row(metric) for file in files))


def _model(stage: str, model: ModelArtifact, metric: str | None) -> LedgerRow:
    size = mebibytes(model.weight_bytes)
    score = model.test_score if metric is None else model.test_scores[metric]
    if isinstance(model, PrunedArtifact):
        return LedgerRow("pruned", score, model_mib=size, note=f"vocabulary {model.cost}")
    note = f"{model.parameters / 1e6:.1f} M weights, {counted(model.steps, 'step')}"
    if isinstance(model, NarrowedArtifact):
        stage, note = "narrowed", f"{note}; {model.cost}"
    return LedgerRow(stage, score, model_mib=size, note=note, seconds=model.train_seconds)
