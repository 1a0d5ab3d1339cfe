"""Results of a build, and the loss ledger: score and cost after each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    DataArtifact,
    ExamplesArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    LinearArtifact,
    ModelArtifact,
    NarrowedArtifact,
    PrunedArtifact,
    ScalesArtifact,
    SelectArtifact,
    WideArtifact,
    mebibytes,
)
from edgepack.errors import EdgepackError, RecipeInvalidError
from edgepack.recipe.model import AnyRecipe, Recipe
from edgepack.util.text import UNGATED, counted, verdict

Verdict = Literal["pass", "fail", "inconclusive", "not run here", "no gates"]
NOT_RUN_HERE: Final = "not run here"


@dataclass(frozen=True)
class NotRunHere:
    """Why a bundle cannot be gated on this machine, and the command for its device."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class Delivery:
    """The bundle of one target, with the result of its gate if this machine can run it."""

    bundle: BundleArtifact
    gate: GateArtifact | NotRunHere

    @property
    def verdict(self) -> Verdict:
        """The verdict of the bundle's gate, or why there is none."""
        if isinstance(self.gate, NotRunHere):
            return NOT_RUN_HERE
        return "no gates" if verdict(self.gate.receipt) == UNGATED else self.gate.verdict


@dataclass(frozen=True)
class Failure:
    """A target or candidate that failed, with its error."""

    name: str
    error: EdgepackError


def with_candidate(error: EdgepackError, name: str) -> EdgepackError:
    """The error with the name of its candidate in the message."""
    what = f"{error.what} (candidate {name})"
    if isinstance(error, RecipeInvalidError):
        return RecipeInvalidError(what, why=error.why, fix=error.fix, findings=error.findings)
    return type(error)(what, why=error.why, fix=error.fix)


@dataclass(frozen=True)
class Made:
    """The result of one stage. `candidates` are those that share it, if others have another result."""

    stage: str
    artifact: Artifact
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """The results of a build that ended early (`--until`), in order."""

    recipe: AnyRecipe
    made: tuple[Made, ...]
    left_out: tuple[Failure, ...] = ()  # failed candidates (`--keep-going`)
    failures: tuple[Failure, ...] = ()  # failed targets (`--keep-going`)

    @property
    def selection(self) -> SelectArtifact | None:
        """The choice between candidates, if the build made it."""
        return next((made.artifact for made in self.made if isinstance(made.artifact, SelectArtifact)), None)

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """The loss ledger so far, of the chosen candidate only: test scores must not decide between candidates."""
        chosen = self.selection.chosen if self.selection else None
        relevant = [made for made in self.made if not made.candidates or chosen in made.candidates]
        models = [(made.stage, made.artifact) for made in relevant if isinstance(made.artifact, ModelArtifact)]
        exported = next((made.artifact for made in relevant if isinstance(made.artifact, ExportArtifact)), None)
        metric = self.recipe.gates.metric
        linear = next((made.artifact for made in relevant if isinstance(made.artifact, LinearArtifact)), None)
        wide = next((made.artifact for made in relevant if isinstance(made.artifact, WideArtifact)), None)
        return (*_linear(linear, wide, metric), *_ledger(models, exported, metric), *_chosen(wide, metric))


@dataclass(frozen=True)
class Build:
    """The results of a build. `recipe` has the values of the chosen candidate.

    A given model has `examples`, and no data, student and scales.
    """

    recipe: AnyRecipe
    data: DataArtifact | None
    teacher: ModelArtifact | None
    student: ModelArtifact | None
    scales: ScalesArtifact | None
    export: ExportArtifact
    deliveries: tuple[Delivery, ...]
    failures: tuple[Failure, ...] = ()  # failed targets (`--keep-going`)
    selection: SelectArtifact | None = None
    left_out: tuple[Failure, ...] = ()  # failed candidates (`--keep-going`)
    narrowed: NarrowedArtifact | None = None
    pruned: PrunedArtifact | None = None
    linear: LinearArtifact | None = None
    wide: WideArtifact | None = None
    examples: ExamplesArtifact | None = None

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """The loss ledger, from the float teacher to every target; before it the linear model, if there is one."""
        gates = (self._gated(item, item.gate) for item in self.deliveries if isinstance(item.gate, GateArtifact))
        metric = self.recipe.gates.metric
        linear, chosen = _linear(self.linear, self.wide, metric), _chosen(self.wide, metric)
        return (*linear, *self._model_rows(self.export), *chosen, *gates)

    def ledger_of(self, item: Delivery) -> tuple[LedgerRow, ...]:
        """The rows of one target, without other targets and models that do not ship to it."""
        exported = self.export.for_target(item.bundle.target)
        shipped = exported.shipped_model
        small = None if shipped is exported.float_model else shipped
        way = replace(exported, small_model=small, variations=())
        metric = self.recipe.gates.metric
        rows = (*_linear(self.linear, self.wide, metric), *self._model_rows(way), *_chosen(self.wide, metric))
        return (*rows, self._gated(item, item.gate)) if isinstance(item.gate, GateArtifact) else rows

    def _gated(self, item: Delivery, gate: GateArtifact) -> LedgerRow:
        """The row of a gated bundle: the verdict, and which model is in it for which reason."""
        exported = self.export.for_target(item.bundle.target)
        way = "encoder" if self.wide is None else self.wide.chosen
        why = [] if way == "linear" else [exported.reason or f"{exported.shipped_model.ledger.stage} ships"]
        if self.wide is not None and way != "encoder":
            why.append(f"{way} ships: {self.wide.why}")
        return replace(gate.ledger, note="; ".join((gate.ledger.note, *why)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the verdict should know about the models, in the order of the stages."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        teacher, linear = self.teacher, self.linear
        distils = isinstance(self.recipe, Recipe) and self.recipe.student.distill is not None
        if teacher is not None and linear is not None and distils:
            theirs, least = (model.test_score.value for model in (teacher, linear))
            if theirs < least:
                yield (
                    f"the teacher ({100 * theirs:.1f} %) is below the linear model ({100 * least:.1f} %): "
                    "a student may learn more from the labels alone (`teacher: null`, `student.distill: null`)"
                )
        if self.wide is not None and self.wide.advice:
            yield self.wide.advice

    def _model_rows(self, exported: ExportArtifact) -> tuple[LedgerRow, ...]:
        every = {"teacher": self.teacher, "student": self.student, "narrow": self.narrowed, "prune": self.pruned}
        models = [(stage, model) for stage, model in every.items() if model is not None]
        return _ledger(models, exported, self.recipe.gates.metric)


def _ledger(
    models: Sequence[tuple[str, ModelArtifact]], exported: ExportArtifact | None, metric: str | None
) -> tuple[LedgerRow, ...]:
    """Ledger rows of the trained models and of the models exported from the last one, scored by `metric`."""
    rows = [_model(stage, model, metric) for stage, model in models]
    if exported is None:
        return tuple(rows)
    if exported.static_graph is not None:
        rows.append(replace(exported.static_graph, score=rows[-1].score))  # the same weights, not measured again
    files = (*exported.models, *(one.model for one in exported.variations))
    return (*rows, *(file.row(metric) for file in files))


def _linear(found: LinearArtifact | None, wide: WideArtifact | None, metric: str | None) -> Iterator[LedgerRow]:
    """The row of the linear model, with what the encoder is worth beside it."""
    if found is None:
        return
    score = found.test_score if metric is None else found.test_scores[metric]
    note, size = counted(found.ngrams, "n-gram"), mebibytes(found.file_bytes)
    row = LedgerRow("linear", score, size, note=note, seconds=found.train_seconds)
    if wide is not None:
        way = wide.way("linear")
        note = f"{note}; the encoder {wide.way('encoder').gains[score.metric].over('a linear model')}"
        row = replace(row, mean_ms=way.mean_ms, p50_ms=way.p50_ms, p95_ms=way.p95_ms, note=note)
    yield row


def _chosen(wide: WideArtifact | None, metric: str | None) -> Iterator[LedgerRow]:
    """The row of the linear model and the encoder together, or of the linear model alone, if that ships."""
    if wide is None or wide.chosen == "encoder":
        return
    way = wide.ships
    score = way.test_scores[metric or wide.metric]
    over_linear, over_encoder = way.gains[score.metric], way.gains_over_encoder[score.metric].over("the encoder")
    if wide.chosen == "linear":
        note = f"the linear model {over_encoder}"
    else:
        note = f"the linear model answers {way.share:.0%} alone"
        note = f"{note}; the {wide.chosen} {over_linear.over('a linear model')}, and {over_encoder}"
    yield LedgerRow(
        wide.chosen,
        score,
        mebibytes(way.weight_bytes),
        way.p50_ms,
        way.p95_ms,
        note=note,
        mean_ms=way.mean_ms,
    )


def _model(stage: str, model: ModelArtifact, metric: str | None) -> LedgerRow:
    size = mebibytes(model.weight_bytes)
    score = model.test_score if metric is None else model.test_scores[metric]
    if isinstance(model, PrunedArtifact):
        return LedgerRow("pruned", score, model_mib=size, note=f"vocabulary {model.cost}")
    note = f"{model.parameters / 1e6:.1f} M weights, {counted(model.steps, 'step')}"
    if model.calibration is not None:
        note = f"{note}; {model.calibration.text}"
    if isinstance(model, NarrowedArtifact):
        stage, note = "narrowed", f"{note}; {model.cost}"
    return LedgerRow(stage, score, model_mib=size, note=note, seconds=model.train_seconds)
