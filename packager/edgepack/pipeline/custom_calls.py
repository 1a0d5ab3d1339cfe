"""The stage calls of a recipe with a given model: examples and graphs; then bundle and gate for each target."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from edgepack.artifacts import BundleArtifact, ExamplesArtifact, ExportArtifact
from edgepack.bundle import packages
from edgepack.pipeline import cache_keys
from edgepack.pipeline.calls import Calls, Results, StageCall, Work, gate_call
from edgepack.pipeline.stages import adapter_payload, bundle, examples, graphs
from edgepack.progress import Progress
from edgepack.recipe.model import CustomRecipe
from edgepack.recipe.validate_custom import read_adapter
from edgepack.results import Build, Delivery, Failure
from edgepack.targets import local
from edgepack.targets.context import BuildContext, default_cache
from edgepack.util.hashing import sha256_file
from edgepack.util.versions import tool_versions


class CustomCalls(Calls):
    """The stage calls of a recipe with a given model and an adapter."""

    def __init__(self, recipe: CustomRecipe, context: BuildContext) -> None:
        self.examples = _examples(recipe)
        super().__init__(recipe, context, self.examples)
        self.custom = recipe
        self.graphs = _graphs(recipe, self.examples, context)
        self.bundles = {target: _bundle(self, target) for target in recipe.targets}
        self.gates = {
            target: gate_call(context, target, packed, self._weight_bytes) for target, packed in self.bundles.items()
        }
        pairs = zip(self.bundles.values(), self.gates.values(), strict=True)
        self._order = [self.examples, self.graphs, *(call for pair in pairs for call in pair)]

    def build(
        self,
        results: Results,
        deliveries: Sequence[Delivery] = (),
        failures: Sequence[Failure] = (),
        left_out: Sequence[Failure] = (),
    ) -> Build:
        return Build(
            recipe=self.custom,
            data=None,
            teacher=None,
            student=None,
            scales=None,
            export=results[self.graphs].artifact,
            deliveries=tuple(deliveries),
            failures=tuple(failures),
            examples=results[self.examples].artifact,
        )

    def _weight_bytes(self, results: Results) -> int:
        return results[self.graphs].artifact.shipped_model.onnx_bytes


def _examples(recipe: CustomRecipe) -> StageCall[ExamplesArtifact]:
    file = Path(recipe.examples)

    def work(results: Results) -> Work[ExamplesArtifact]:
        item = str(read_adapter(Path(recipe.adapter)).item)
        key = cache_keys.make("examples", examples.VERSION, item, examples.digests(file, item))
        return Work(key, lambda out, checkpoint, progress: examples.run(file, item, out, progress))

    return StageCall("examples", ExamplesArtifact, (), work)


def _graphs(
    recipe: CustomRecipe, rows: StageCall[ExamplesArtifact], context: BuildContext
) -> StageCall[ExportArtifact]:
    section, adapter, requirements = recipe.model, Path(recipe.adapter), recipe.requirements

    def run(read: ExamplesArtifact, out: Path, progress: Progress) -> ExportArtifact:
        site = None
        if requirements is not None:
            site = packages.unpacked_here(requirements, context, progress, default_cache() / "packages")
        return graphs.run(section, adapter, read, site, recipe.quantize, out, progress)

    def work(results: Results) -> Work[ExportArtifact]:
        sources = {file: graphs.PaddleFiles.of(Path(file)) for file in section.graphs.values()}
        files = [path for file, found in sources.items() for path in (found.files if found else (Path(file),))]
        files += [Path(file) for file in (*section.files, recipe.adapter)]
        inputs = [results[rows].digest, *map(sha256_file, files)]
        inputs += [] if requirements is None else [sha256_file(requirements)]
        names = [*section.graphs, *(Path(file).name for file in section.files)]
        decides = {"names": names, "quantize": cache_keys.dump(recipe.quantize)}
        key = cache_keys.make("graphs", graphs.VERSION, decides, [*inputs, *cache_keys.runtime()], local.host_facts())
        read = results[rows].artifact
        return Work(key, lambda out, checkpoint, progress: run(read, out, progress))

    return StageCall("graphs", ExportArtifact, (rows,), work)


def _bundle(calls: CustomCalls, target: str) -> StageCall[BundleArtifact]:
    context, recipe = calls.context, calls.custom

    def work(results: Results) -> Work[BundleArtifact]:
        ledger = tuple(row.timeless() for row in calls.build(results).ledger)
        decides = {
            "recipe": bundle.recipe_sha256(recipe),
            "target": target,
            "ledger": [asdict(row) for row in ledger],
            "tools": tool_versions(),  # the manifest lists them
        }
        inputs = [results[calls.examples].digest, results[calls.graphs].digest, *cache_keys.runtime()]
        inputs += bundle.inputs(recipe, context.profile(target), context)
        key = cache_keys.make("bundle", bundle.VERSION, decides, inputs)
        model, rows = results[calls.graphs].artifact, results[calls.examples].artifact
        payload = functools.partial(adapter_payload.make, recipe, model, rows)
        return Work(
            key,
            lambda out, checkpoint, progress: bundle.run(
                recipe, target, lambda scratch, report: payload(), ledger, context, out, progress
            ),
        )

    return StageCall("bundle", BundleArtifact, (calls.examples, calls.graphs), work, target)
