"""What the bundles of recipes that train ship: an encoder, perhaps with a linear model beside it, or that one alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact
from edgepack.recipe.model import AnyRecipe, LinearRecipe
from edgepack.stages import text_payload
from edgepack.stages.bundle import Payload, Shipment
from edgepack.stages.chain import Candidates
from edgepack.stages.combine import CombineStage
from edgepack.stages.linear import LinearStage
from edgepack.stages.stage import Context, Stage
from edgepack.stages.text_payload import LinearPart
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.model_config import LINEAR_NAME


@dataclass(frozen=True, eq=False)
class TrainedShipment(Shipment):
    """The exported model of the chosen candidate, as `combine` decides.

    Attributes:
        shared: the stages before those of the candidates.
    """

    shared: Sequence[Stage[Any]]
    rows: Stage[DataArtifact]
    linear: LinearStage | None
    candidates: Candidates
    combine: CombineStage | None

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        combine = () if self.combine is None else (self.combine,)
        return (self.rows, self.candidates.decider, *combine)

    def recipe(self, ctx: Context) -> AnyRecipe:
        return self.candidates.chosen(ctx).recipe

    def made(self, ctx: Context) -> Sequence[Stage[Any]]:
        deciders = (stage for stage in (self.candidates.select, self.combine) if stage is not None)
        return [*self.shared, *deciders, *self.candidates.chosen(ctx).stages]

    def packed(self, ctx: Context) -> Sequence[Stage[Any]]:
        return [self.rows, self.candidates.chosen(ctx).export]

    def decides(self, ctx: Context) -> Any:
        part = self._linear_part(ctx)
        return part and [asdict(part.config), sha256_file(part.file)]

    def weight_bytes(self, ctx: Context, target: str) -> int:
        if self.combine is not None:
            return ctx.artifact(self.combine).ships.weight_bytes
        return ctx.artifact(self.candidates.chosen(ctx).export).for_target(target).shipped_model.onnx_bytes

    def payload(self, ctx: Context, target: str, scratch: Path) -> Payload:
        chain = self.candidates.chosen(ctx)
        exported, ancestors = ctx.artifact(chain.export).for_target(target), text_payload.ancestors_of(chain.recipe)
        model = text_payload.text_model_of_export(exported, self._linear_part(ctx), ancestors)
        return text_payload.make(chain.recipe, model, ctx.artifact(self.rows), scratch, ctx.progress)

    def _linear_part(self, ctx: Context) -> LinearPart | None:
        """The linear model that ships beside the encoder; None for the encoder alone."""
        if self.linear is None or self.combine is None:
            return None
        combine = ctx.artifact(self.combine)
        if combine.config is None:
            return None
        score = combine.ships.test_scores[self.recipe(ctx).gates.metric or combine.metric]
        return LinearPart(ctx.artifact(self.linear).folder / LINEAR_NAME, combine.config, score)


@dataclass(frozen=True, eq=False)
class LinearShipment(Shipment):
    """The linear model of a recipe with `linear: only`."""

    only: LinearRecipe
    rows: Stage[DataArtifact]
    linear: LinearStage

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.linear)

    def recipe(self, ctx: Context) -> AnyRecipe:
        return self.only

    def made(self, ctx: Context) -> Sequence[Stage[Any]]:
        return self.needs

    def packed(self, ctx: Context) -> Sequence[Stage[Any]]:
        return self.needs

    def weight_bytes(self, ctx: Context, target: str) -> int:
        return ctx.artifact(self.linear).file_bytes

    def payload(self, ctx: Context, target: str, scratch: Path) -> Payload:
        model = text_payload.text_model_of_linear(ctx.artifact(self.linear), self.only.gates.metric)
        return text_payload.make(self.only, model, ctx.artifact(self.rows), scratch, ctx.progress)
