"""Results of a build, and the ledger: score and cost after each stage."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Literal, TypeVar

from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    CombineArtifact,
    DataArtifact,
    ExamplesArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    LinearArtifact,
    ModelArtifact,
    ScalesArtifact,
    SelectArtifact,
    TrimmedArtifact,
    WidthPrunedArtifact,
    mebibytes,
)
from edgepack.errors import EdgepackError, RecipeInvalidError
from edgepack.messages import joined, message
from edgepack.recipe.model import AnyRecipe, LinearRecipe, Recipe
from edgepack.recipe.training import FromTeacher
from edgepack_runtime.schema.figures import quantity
from edgepack_runtime.schema.receipt import UNGATED
from edgepack_runtime.stats import intervals

Verdict = Literal[intervals.Verdict, "not run here", "no gates"]
NOT_RUN_HERE: Final = "not run here"
A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class NotRunHere:
    """Why a bundle cannot be gated on this machine, and the command for its device."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class TargetResult:
    """The bundle of one target, with the result of its gate if this machine can run it.

    `refuses_doubt`: whether the command refuses an inconclusive gate (`--strict`), whatever the recipe says.
    """

    bundle: BundleArtifact
    gate: GateArtifact | NotRunHere
    refuses_doubt: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict of the bundle's gate, or why there is none."""
        if isinstance(self.gate, NotRunHere):
            return NOT_RUN_HERE
        return UNGATED if self.gate.gated.judged == UNGATED else self.gate.verdict

    @property
    def refused(self) -> str | None:
        """The verdict for which the bundle is not delivered, `fail` or `inconclusive`; None if it is delivered."""
        if isinstance(self.gate, NotRunHere):
            return None
        return self.gate.gated.refusal(refuse_doubt=True if self.refuses_doubt else None)

    @property
    def refused_by_strict(self) -> bool:
        """Whether `--strict` alone keeps it from being delivered."""
        return isinstance(self.gate, GateArtifact) and self.refused != self.gate.gated.refusal()

    @property
    def caveats(self) -> list[str]:
        """What the gate of a delivered bundle did not show, a line each."""
        if self.verdict != intervals.INCONCLUSIVE or isinstance(self.gate, NotRunHere):
            return []
        return self.gate.gated.not_shown


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
class StageArtifact:
    """The result of one stage. `candidates` are those that share it, if others have another result."""

    stage: str
    artifact: Artifact
    candidates: tuple[str, ...] = ()


class _Made(Generic[A]):
    """The artifact of a kind in a build, that of `stage` if several have the kind; None if there is none."""

    def __init__(self, kind: type[A], stage: str | None = None) -> None:
        self._kind = kind
        self._stage = stage

    def __get__(self, build: Build, owner: type[Build]) -> A | None:
        found = (one for stage, one in build.artifacts.items() if self._stage in (None, stage))
        return next((one for one in found if isinstance(one, self._kind)), None)


@dataclass(frozen=True)
class Build:
    """The results of a build. `recipe` has the values of the chosen candidate.

    An imported model has no student and no scales, and with a handler `examples` in place of data. A linear model
    alone has no student, scales and export. A build that ended early (`--until`) has what it made.

    Attributes:
        artifacts: of what ships, by stage, in order.
        stage_artifacts: the results of all stages that ran or were cached, in order.
        ended_early: before the gates.
    """

    recipe: AnyRecipe
    artifacts: Mapping[str, Artifact]
    target_results: tuple[TargetResult, ...] = ()
    failed_targets: tuple[Failure, ...] = ()  # with `--keep-going`
    failed_candidates: tuple[Failure, ...] = ()  # with `--keep-going`
    stage_artifacts: tuple[StageArtifact, ...] = ()
    ended_early: bool = False

    data = _Made(DataArtifact)
    examples = _Made(ExamplesArtifact)
    teacher = _Made(ModelArtifact, "teacher")
    student = _Made(ModelArtifact, "student")
    scales = _Made(ScalesArtifact)
    export = _Made(ExportArtifact)
    linear = _Made(LinearArtifact)
    selection = _Made(SelectArtifact)
    combined = _Made(CombineArtifact)
    width_pruning = _Made(WidthPrunedArtifact)
    vocabulary_trimming = _Made(TrimmedArtifact)

    @classmethod
    def until(cls, recipe: AnyRecipe, artifacts: Sequence[StageArtifact]) -> Build:
        """A build that ended early. Of several candidates it shows the chosen one, if there is one.

        Test scores must not decide between candidates.
        """
        selection = next((one.artifact for one in artifacts if isinstance(one.artifact, SelectArtifact)), None)
        chosen = selection.chosen if selection else None
        found = {one.stage: one.artifact for one in artifacts if not one.candidates or chosen in one.candidates}
        return cls(recipe, found, stage_artifacts=tuple(artifacts), ended_early=True)

    @property
    def models(self) -> list[tuple[str, ModelArtifact]]:
        """The models in the order of their stages, each with the name of its row."""
        models = ((stage, one) for stage, one in self.artifacts.items() if isinstance(one, ModelArtifact))
        return [(model.row_of(stage), model) for stage, model in models]

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """The ledger, from the float teacher to every target; before it what is cheapest, if there is such."""
        gates = (self._gated(item, item.gate) for item in self.target_results if isinstance(item.gate, GateArtifact))
        metric = self.recipe.gates.metric
        linear, chosen = _linear(self.linear, self.combined, metric), _chosen(self.combined, metric)
        return (*self._rule(), *linear, *self._model_rows(self.export), *chosen, *gates)

    def ledger_of(self, item: TargetResult) -> tuple[LedgerRow, ...]:
        """The rows of one target, without other targets and models that do not ship to it."""
        exported = None if self.export is None else self.export.for_target(item.bundle.target)
        if exported is not None:
            small = None if exported.shipped_model is exported.float_model else exported.shipped_model
            exported = replace(exported, small_model=small, variations=())
        metric = self.recipe.gates.metric
        rows = (
            *self._rule(),
            *_linear(self.linear, self.combined, metric),
            *self._model_rows(exported),
            *_chosen(self.combined, metric),
        )
        return (*rows, self._gated(item, item.gate)) if isinstance(item.gate, GateArtifact) else rows

    def _rule(self) -> Iterator[LedgerRow]:
        """The row of the task's rule, which takes no time and no weights."""
        if self.data is not None and self.data.rule:
            task = self.data.text_task
            score = self.data.rule[self.recipe.gates.metric or task.usual_metric]
            yield LedgerRow("rule", score, note=message(f"note.rule_of_{task.name}"))

    def _gated(self, item: TargetResult, gate: GateArtifact) -> LedgerRow:
        """The row of a gated bundle: the verdict, and which model is in it for which reason."""
        why = []
        if self.export is not None:
            exported = self.export.for_target(item.bundle.target)
            why.append(exported.reason or message("note.ships", name=exported.shipped_model.ledger.stage))
        if self.combined is not None and self.combined.chosen != "encoder":
            ships = message("note.ships", name=self.combined.chosen)
            why.append(joined(ships, self.combined.why, by="list.colon"))
        return replace(gate.ledger, note=joined(gate.ledger.note, *why))

    def warnings(self, file: str, settings: Sequence[str] = ()) -> tuple[str, ...]:
        """What a reader should know about the models: one piece of advice at most.

        Args:
            file: the recipe, as the command of the advice names it.
            settings: those of `--set` of this build, which the command keeps.
        """
        advice = self._advice()
        if advice is None:
            return ()
        why, others = advice
        replaced = {setting.partition("=")[0] for setting in others}
        kept = [setting for setting in settings if setting.partition("=")[0] not in replaced]
        words = ["edgepack", "build", file, *(word for setting in (*kept, *others) for word in ("--set", setting))]
        return (joined(why, shlex.join(words), by="list.colon"),)

    def _advice(self) -> tuple[str, tuple[str, ...]] | None:
        """What to build instead: the reason, and what `--set` takes. Only what is shown, and only if it builds."""
        recipe = self.recipe
        if not isinstance(recipe, Recipe):
            return None
        instead = None if self.combined is None else self.combined.instead(recipe.gates.metric)
        if instead is not None:
            name, why = instead
            if name == "encoder":
                return why, ("linear=baseline",)
            return why, LinearRecipe.settings(recipe, searched=self.selection is not None)
        teacher, linear, student = self.teacher, self.linear, recipe.student
        if teacher is None or linear is None or student.distill is None or isinstance(student.model, FromTeacher):
            return None
        theirs, least = teacher.test_score, linear.test_score
        if theirs.high >= least.low or self.selection is not None:
            return None
        why = message(
            "warn.weak_teacher",
            teacher=quantity(theirs.value, theirs.unit),
            linear=quantity(least.value, least.unit),
        )
        unlabelled = () if recipe.data.unlabelled is None else ("data.unlabelled=null",)
        return why, ("teacher=null", "student.distill=null", *unlabelled)

    def _model_rows(self, exported: ExportArtifact | None) -> tuple[LedgerRow, ...]:
        """Rows of the models and of those exported from the last one, in the metric of the recipe."""
        metric = self.recipe.gates.metric
        rows = [_model(name, model, metric) for name, model in self.models]
        if exported is None:
            return tuple(rows)
        if exported.static_graph is not None:
            rows.append(replace(exported.static_graph, score=rows[-1].score))  # the same weights, not measured again
        files = (*exported.models, *(one.model for one in exported.variations))
        return (*rows, *(file.row(metric) for file in files))


def _linear(found: LinearArtifact | None, combined: CombineArtifact | None, metric: str | None) -> Iterator[LedgerRow]:
    """The row of the linear model, with what the encoder is worth beside it."""
    if found is None:
        return
    score = found.test_score if metric is None else found.test_scores[metric]
    note: str = message("note.ngrams", n=found.ngrams)
    size = mebibytes(found.file_bytes)
    row = LedgerRow("linear", score, size, note=note, seconds=found.train_seconds)
    if combined is not None:
        method = combined.method("linear")
        gain = combined.method("encoder").gains[score.metric].over(message("name.encoder"), message("name.a_linear"))
        note = joined(row.note, gain)
        row = replace(row, mean_ms=method.mean_ms, p50_ms=method.p50_ms, p95_ms=method.p95_ms, note=note)
    yield row


def _chosen(combined: CombineArtifact | None, metric: str | None) -> Iterator[LedgerRow]:
    """The row of the linear model and the encoder together, if they ship."""
    if combined is None or combined.chosen == "encoder":
        return
    method = combined.ships
    score = method.test_scores[metric or combined.metric]
    chosen = message(f"name.{combined.chosen}")
    over_linear = method.gains[score.metric].over(chosen, message("name.a_linear"))
    over_encoder = method.gains_over_encoder[score.metric].over(chosen, message("name.encoder"))
    note = joined(message("note.answers_alone", share=method.share), over_linear, over_encoder)
    yield LedgerRow(
        combined.chosen,
        score,
        mebibytes(method.weight_bytes),
        method.p50_ms,
        method.p95_ms,
        note=note,
        mean_ms=method.mean_ms,
    )


def _model(name: str, model: ModelArtifact, metric: str | None) -> LedgerRow:
    score = model.test_score if metric is None else model.test_scores[metric]
    seconds = model.train_seconds if model.is_trained else None
    return LedgerRow(name, score, model_mib=mebibytes(model.weight_bytes), note=model.note, seconds=seconds)
