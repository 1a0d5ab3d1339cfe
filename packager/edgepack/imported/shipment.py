"""What the bundles of imported models ship: the model of stage `graphs`, for the provider of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, ExamplesArtifact
from edgepack.imported import handler_payload
from edgepack.imported.classifier import ClassifierStage
from edgepack.imported.examples import ExamplesStage
from edgepack.imported.graphs import GraphsStage
from edgepack.imported.rows import ImportedRowsStage
from edgepack.recipe.model import AnyRecipe, CustomRecipe, ImportedTextRecipe
from edgepack.stages import text_payload
from edgepack.stages.bundle import Payload, Shipment
from edgepack.stages.stage import Context, Stage
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.model_config import CONFIG_NAME, CPU, EngineConfig, dump, load


@dataclass(frozen=True, eq=False)
class ImportedShipment(Shipment):
    """An imported model with what answers before and after it: a handler, or a tokenizer and labels."""

    imported: CustomRecipe | ImportedTextRecipe
    rows: ExamplesStage | ImportedRowsStage
    graphs: GraphsStage | ClassifierStage

    is_imported = True

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.graphs)

    def recipe(self, ctx: Context) -> AnyRecipe:
        return self.imported

    def made(self, ctx: Context) -> Sequence[Stage[Any]]:
        return self.needs

    def packed(self, ctx: Context) -> Sequence[Stage[Any]]:
        return self.needs

    def weight_bytes(self, ctx: Context, target: str) -> int:
        return ctx.artifact(self.graphs).shipped_model.onnx_bytes

    def payload(self, ctx: Context, target: str, scratch: Path) -> Payload:
        recipe, model, rows = self.imported, ctx.artifact(self.graphs), ctx.artifact(self.rows)
        if isinstance(recipe, CustomRecipe):
            assert isinstance(rows, ExamplesArtifact), "a handler has examples"
            made = handler_payload.make(recipe, model, rows)
        else:
            assert isinstance(rows, DataArtifact), "a text model has rows"
            made = text_payload.make(recipe, text_payload.text_model_of_export(model), rows, scratch, ctx.progress)
        return for_provider(ctx.targets.profile(target).provider, made)


def for_provider(provider: str, payload: Payload) -> Payload:
    """The payload with a model that runs on the target's provider; the build ran it on the CPU."""
    name = f"{MODEL_FOLDER}/{CONFIG_NAME}"
    file = payload.model[name]
    if provider == CPU or not isinstance(file, Path):
        return payload
    config = replace(load(file.parent), engine=EngineConfig(provider))
    return replace(payload, model={**payload.model, name: dump(config)})
