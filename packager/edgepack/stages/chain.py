"""Chain of the stages of one candidate, and the chains of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgepack.artifacts import ModelArtifact, SelectArtifact
from edgepack.recipe.model import EncoderRecipe
from edgepack.stages.export import ExportStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.stage import Context, Stage


@dataclass(frozen=True)
class Chain:
    """The stages of one model, from its training to its exported files. `recipe` has the values of its candidate.

    Attributes:
        models: the student, or the model that was trained elsewhere, and the stages that make another model of the one
            before. The last one is exported.
    """

    recipe: EncoderRecipe
    models: tuple[Stage[ModelArtifact], ...]
    quantize: QuantizeStage
    export: ExportStage

    @property
    def stages(self) -> list[Stage[Any]]:
        """The stages in order."""
        return [*self.models, self.quantize, self.export]

    @property
    def last(self) -> ExportStage:
        """The stage after which the candidate is complete."""
        return self.export

    @property
    def model(self) -> Stage[ModelArtifact]:
        """The stage that makes the model that is quantized and exported."""
        return self.models[-1]

    def train_seconds(self, ctx: Context) -> float:
        """Seconds of training: of the student and, if it is pruned in width, of the training after the cut."""
        models = (ctx.artifact(stage) for stage in self.models)
        return float(sum(model.train_seconds for model in models if model.is_trained))


@dataclass(frozen=True, eq=False)
class Candidates:
    """The students that a recipe trains, and the one of them that ships.

    Attributes:
        chains: by name of the candidate, "" without a search.
    """

    chains: Mapping[str, Chain]
    select: Stage[SelectArtifact] | None

    @property
    def decider(self) -> Stage[Any]:
        """The stage that decides which export ships."""
        return self.select or self.chains[""].last

    def chosen(self, ctx: Context) -> Chain:
        """The chain that ships."""
        return self.chains["" if self.select is None else ctx.artifact(self.select).chosen]
