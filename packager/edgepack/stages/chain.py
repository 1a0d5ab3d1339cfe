"""Chain of the stages of one candidate, and the chains of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgepack.artifacts import SelectArtifact
from edgepack.recipe.model import Recipe
from edgepack.stages.export import ExportStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.stage import Context, Stage
from edgepack.stages.train import StudentStage
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.stages.width_pruning import WidthPruningStage


@dataclass(frozen=True)
class Chain:
    """The stages of one student, from its training to its exported files. `recipe` has the values of its candidate."""

    recipe: Recipe
    student: StudentStage
    width_pruning: WidthPruningStage | None
    vocabulary_trimming: VocabularyTrimmingStage | None
    quantize: QuantizeStage
    export: ExportStage

    @property
    def stages(self) -> list[Stage[Any]]:
        """The stages in order."""
        every = (self.student, self.width_pruning, self.vocabulary_trimming, self.quantize, self.export)
        return [stage for stage in every if stage is not None]

    @property
    def last(self) -> ExportStage:
        """The stage after which the candidate is complete."""
        return self.export

    @property
    def model(self) -> StudentStage | WidthPruningStage | VocabularyTrimmingStage:
        """The stage that makes the model that is quantized and exported."""
        return self.vocabulary_trimming or self.width_pruning or self.student

    def train_seconds(self, ctx: Context) -> float:
        """Seconds of training: of the student and, if it is pruned in width, of the training after the cut."""
        trainings = [self.student, *([self.width_pruning] if self.width_pruning else [])]
        return float(sum(ctx.artifact(stage).train_seconds for stage in trainings))


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
