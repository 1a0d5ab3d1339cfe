"""What a whole build made, and the loss ledger that tells what each step of it cost."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.artifacts import (
    BundleArtifact,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    ModelArtifact,
    ScalesArtifact,
    mebibytes,
)
from edgepack.recipe.model import Recipe


@dataclass(frozen=True)
class Delivery:
    """One target's bundle and what its gate said."""

    bundle: BundleArtifact
    gate: GateArtifact


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
    rows = [_trained("teacher", taught_by)] if taught_by else []
    rows += [_trained("student", learner), exported.static_graph, exported.float_model.ledger]
    rows += [exported.int8_model.ledger] if exported.int8_model else []
    return tuple(rows)


def _trained(name: str, model: ModelArtifact) -> LedgerRow:
    note = f"{model.parameters / 1e6:.1f} M weights, {model.steps} steps"
    size = mebibytes(model.weight_bytes)
    return LedgerRow(name, model.test_accuracy, model_mib=size, note=note, seconds=model.train_seconds)
