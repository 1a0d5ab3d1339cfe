"""What a whole build made, and the loss ledger that tells what each step of it cost."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    ModelArtifact,
    ScalesArtifact,
    mebibytes,
)
from edgepack.errors import EdgepackError
from edgepack.recipe.model import Recipe


@dataclass(frozen=True)
class Delivery:
    """One target's bundle and what its gate said."""

    bundle: BundleArtifact
    gate: GateArtifact


@dataclass(frozen=True)
class Failure:
    """A target that could not be built or gated, and why."""

    target: str
    error: EdgepackError


@dataclass(frozen=True)
class Part:
    """What a build made that was told to end early: stage and artifact, in the order they were made."""

    recipe: Recipe
    made: tuple[tuple[str, Artifact], ...]

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """As much of the loss ledger as there is."""
        made = dict(self.made)
        rows = [_trained(stage, model) for stage, model in made.items() if isinstance(model, ModelArtifact)]
        exported = made.get("export")
        return (*rows, *(_exported(exported) if isinstance(exported, ExportArtifact) else ()))


@dataclass(frozen=True)
class Build:
    """Everything a build made, in the order it was made."""

    recipe: Recipe
    data: DataArtifact
    teacher: ModelArtifact | None
    student: ModelArtifact
    scales: ScalesArtifact
    export: ExportArtifact
    deliveries: tuple[Delivery, ...]
    failures: tuple[Failure, ...] = ()  # of targets, when the build was told to keep going

    @property
    def ledger(self) -> tuple[LedgerRow, ...]:
        """The loss ledger from the float teacher to every target."""
        return (
            *model_ledger(self.teacher, self.student, self.export),
            *(d.gate.ledger for d in self.deliveries),
        )


def model_ledger(
    taught_by: ModelArtifact | None, learner: ModelArtifact, exported: ExportArtifact
) -> tuple[LedgerRow, ...]:
    """Ledger rows up to the exported files."""
    teacher = [_trained("teacher", taught_by)] if taught_by else []
    return (*teacher, _trained("student", learner), *_exported(exported))


def _exported(exported: ExportArtifact) -> tuple[LedgerRow, ...]:
    int8 = [exported.int8_model.ledger] if exported.int8_model else []
    return (exported.static_graph, exported.float_model.ledger, *int8)


def _trained(name: str, model: ModelArtifact) -> LedgerRow:
    note = f"{model.parameters / 1e6:.1f} M weights, {model.steps} steps"
    size = mebibytes(model.weight_bytes)
    return LedgerRow(name, model.test_score, model_mib=size, note=note, seconds=model.train_seconds)
