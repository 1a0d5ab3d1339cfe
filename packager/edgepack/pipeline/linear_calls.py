"""The stage calls of a recipe with `wide: only`: data, linear, bundle, gate. Nothing here imports Paddle."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from edgepack.artifacts import DataArtifact, LinearArtifact
from edgepack.errors import RecipeInvalidError
from edgepack.pipeline import cache_keys
from edgepack.pipeline.calls import Calls, Results, Shipped, StageCall, Work, bundle_call, gate_call
from edgepack.pipeline.stages import data, linear, text_payload
from edgepack.recipe.model import Data, LinearRecipe
from edgepack.results import Build, Delivery, Failure
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.model_config import CPU


class LinearCalls(Calls):
    """The stage calls of a recipe with `wide: only`."""

    def __init__(self, recipe: LinearRecipe, context: BuildContext) -> None:
        gpu = [target for target in recipe.targets if context.known(target).provider != CPU]
        if gpu:
            raise RecipeInvalidError(
                f"`wide: only` ships a linear model, and the target {gpu[0]} has a GPU",
                why="a linear model runs on the CPU",
                fix="name a target without a GPU, such as linux-x86_64 or linux-aarch64",
            )
        self.data = data_call(recipe.data)
        super().__init__(recipe, context, self.data)
        self._recipe = recipe
        self.linear = linear_call(self.data)
        for target in recipe.targets:
            self.bundles[target] = bundle_call(self, target, (self.data, self.linear), self._shipped)
            self.gates[target] = gate_call(context, target, self.bundles[target], self._weight_bytes)
        pairs = zip(self.bundles.values(), self.gates.values(), strict=True)
        self._order = [self.data, self.linear, *(call for pair in pairs for call in pair)]

    def build(
        self,
        results: Results,
        deliveries: Sequence[Delivery] = (),
        failures: Sequence[Failure] = (),
        left_out: Sequence[Failure] = (),
    ) -> Build:
        return Build(
            recipe=self._recipe,
            data=results[self.data].artifact,
            teacher=None,
            student=None,
            scales=None,
            export=None,
            deliveries=tuple(deliveries),
            failures=tuple(failures),
            linear=results[self.linear].artifact,
        )

    def _shipped(self, results: Results) -> Shipped:
        read, model = results[self.data], results[self.linear]
        ships = text_payload.of_linear(model.artifact, self._recipe.gates.metric)
        payload = functools.partial(text_payload.make, self._recipe, ships, read.artifact)
        return Shipped(self._recipe, [read, model], payload)

    def _weight_bytes(self, results: Results) -> int:
        return results[self.linear].artifact.file_bytes


def data_call(section: Data) -> StageCall[DataArtifact]:
    """The reading of the rows."""

    def work(results: Results) -> Work[DataArtifact]:
        key = cache_keys.make("data", data.VERSION, cache_keys.data_section(section), cache_keys.data_digests(section))
        return Work(key, lambda out, checkpoint, progress: data.run(section, out, progress))

    return StageCall("data", DataArtifact, (), work)


def linear_call(rows: StageCall[DataArtifact]) -> StageCall[LinearArtifact]:
    """The training of the linear model."""

    def work(results: Results) -> Work[LinearArtifact]:
        key = cache_keys.make("linear", linear.VERSION, None, cache_keys.labelled(results[rows]))
        read = results[rows].artifact
        return Work(key, lambda out, checkpoint, progress: linear.run(read, out, progress))

    return StageCall("linear", LinearArtifact, (rows,), work)
