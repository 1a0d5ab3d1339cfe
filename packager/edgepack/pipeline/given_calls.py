"""The stage calls of a recipe with a given model: its rows or examples, and its graphs; then bundle and gate."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, ExamplesArtifact, ExportArtifact
from edgepack.bundle import packages
from edgepack.errors import RecipeInvalidError
from edgepack.pipeline import cache_keys
from edgepack.pipeline.calls import Calls, Results, Shipped, StageCall, Work, bundle_call, gate_call
from edgepack.pipeline.stages import (
    adapter_payload,
    classifier,
    data,
    examples,
    given_graphs,
    graphs,
    text_payload,
)
from edgepack.pipeline.stages.bundle import Payload, PayloadMaker
from edgepack.pipeline.workspace import Input
from edgepack.progress import Progress
from edgepack.recipe.model import CustomRecipe, GivenTextRecipe
from edgepack.recipe.validate_given import read_adapter
from edgepack.results import Build, Delivery, Failure
from edgepack.sandbox import runner as sandbox
from edgepack.targets import local
from edgepack.targets.context import BuildContext, default_cache
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.model_config import CONFIG_NAME, CPU, EngineConfig, dump, load


class GivenCalls(Calls):
    """The stage calls of a recipe with a given model. `rows` reads its examples or its test rows."""

    def __init__(self, recipe: CustomRecipe | GivenTextRecipe, context: BuildContext) -> None:
        if isinstance(recipe, CustomRecipe):
            examples = _examples(recipe)
            self.rows: StageCall[Any] = examples
            self.graphs = _graphs(recipe, examples, context)
        else:
            rows = _test_rows(recipe)
            self.rows, self.graphs = rows, _classifier(recipe, rows)
        super().__init__(recipe, context, self.rows)
        self.given = recipe
        gpu = [target for target in recipe.targets if context.known(target).provider != CPU]
        if gpu and recipe.quantize.method != "none":
            raise RecipeInvalidError(
                f"`quantize.method` is {recipe.quantize.method}, and the target {gpu[0]} has a GPU",
                why="ONNX Runtime's INT8 is for CPUs",
                fix="build it for that target with `--set quantize.method=none`, and for the others with another build",
            )
        self.bundles = {
            target: bundle_call(self, target, (self.rows, self.graphs), functools.partial(self._shipped, target))
            for target in recipe.targets
        }
        self.gates = {
            target: gate_call(context, target, packed, self._weight_bytes) for target, packed in self.bundles.items()
        }
        pairs = zip(self.bundles.values(), self.gates.values(), strict=True)
        self._order = [self.rows, self.graphs, *(call for pair in pairs for call in pair)]

    def build(
        self,
        results: Results,
        deliveries: Sequence[Delivery] = (),
        failures: Sequence[Failure] = (),
        left_out: Sequence[Failure] = (),
    ) -> Build:
        read = results[self.rows].artifact
        return Build(
            recipe=self.given,
            data=read if isinstance(read, DataArtifact) else None,
            teacher=None,
            student=None,
            scales=None,
            export=results[self.graphs].artifact,
            deliveries=tuple(deliveries),
            failures=tuple(failures),
            examples=read if isinstance(read, ExamplesArtifact) else None,
        )

    def _shipped(self, target: str, results: Results) -> Shipped:
        rows, model, recipe = results[self.rows], results[self.graphs], self.given
        if isinstance(recipe, CustomRecipe):
            make = functools.partial(adapter_payload.make, recipe, model.artifact, rows.artifact)
        else:
            given = text_payload.of_export(model.artifact)
            make = functools.partial(text_payload.make, recipe, given, rows.artifact)
        payload = functools.partial(_for_provider, self.context.profile(target).provider, make)
        return Shipped(recipe, [rows, model], payload)

    def _weight_bytes(self, results: Results) -> int:
        return results[self.graphs].artifact.shipped_model.onnx_bytes


def _examples(recipe: CustomRecipe) -> StageCall[ExamplesArtifact]:
    file = Path(recipe.examples)

    def work(results: Results) -> Work[ExamplesArtifact]:
        item = str(read_adapter(Path(recipe.adapter)).item)
        key = cache_keys.make(
            "examples", examples.VERSION, item, cache_keys.named("examples", examples.digests(file, item))
        )
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
        job = functools.partial(graphs.run, section, adapter, read, site, recipe.quantize, out)
        return sandbox.run(job, ExportArtifact, out, progress, stage="graphs")  # the adapter may read what it likes

    def work(results: Results) -> Work[ExportArtifact]:
        files = [path for file in section.graphs.values() for path in given_graphs.files(file)]
        files += [Path(file) for file in (*section.files, recipe.adapter)]
        files += [] if requirements is None else [requirements]
        inputs = [cache_keys.whole(results[rows]), *(Input(file.name, sha256_file(file)) for file in files)]
        names = [*section.graphs, *(Path(file).name for file in section.files)]
        decides = {"names": names, "quantize": cache_keys.dump(recipe.quantize)}
        key = cache_keys.make("graphs", graphs.VERSION, decides, [*inputs, *cache_keys.runtime()], local.host_facts())
        read = results[rows].artifact
        return Work(key, lambda out, checkpoint, progress: run(read, out, progress))

    return StageCall("graphs", ExportArtifact, (rows,), work)


def _test_rows(recipe: GivenTextRecipe) -> StageCall[DataArtifact]:
    section, labels = recipe.data, tuple(recipe.model.labels)
    calibration = given_graphs.MOST_RUNS if recipe.quantize.method == "ptq" else 0

    def work(results: Results) -> Work[DataArtifact]:
        decides = {**cache_keys.dump(section), "test": Path(section.test).suffix, "labels": labels}
        if calibration:
            decides["calibration"] = calibration
        key = cache_keys.make("data", data.VERSION, decides, [Input("test", sha256_file(Path(section.test)))])
        return Work(
            key,
            lambda out, checkpoint, progress: data.run_given(section, labels, out, progress, calibration=calibration),
        )

    return StageCall("data", DataArtifact, (), work)


def _classifier(recipe: GivenTextRecipe, rows: StageCall[DataArtifact]) -> StageCall[ExportArtifact]:
    section, quantize = recipe.model, recipe.quantize

    def work(results: Results) -> Work[ExportArtifact]:
        decides = {
            "labels": section.labels,
            "max_length": section.max_length,
            "tokenizer": [section.tokenizer, section.lower_case],
            "quantize": cache_keys.dump(quantize),
        }
        files = [*given_graphs.files(section.graph), Path(section.vocab)]
        inputs = [cache_keys.whole(results[rows]), *(Input(file.name, sha256_file(file)) for file in files)]
        key = cache_keys.make(
            "graphs", classifier.VERSION, decides, [*inputs, *cache_keys.runtime()], local.host_facts()
        )
        read = results[rows].artifact

        def run(out: Path, checkpoint: Path, progress: Progress) -> ExportArtifact:
            job = functools.partial(classifier.run, section, read, quantize, out)
            reads = [Path(section.graph), *files, read.folder]
            return sandbox.run(job, ExportArtifact, out, progress, stage="graphs", reads=reads)

        return Work(key, run)

    return StageCall("graphs", ExportArtifact, (rows,), work)


def _for_provider(provider: str, make: PayloadMaker, scratch: Path, progress: Progress) -> Payload:
    """A payload with a model that runs on the target's provider; the build ran it on the CPU."""
    payload = make(scratch, progress)
    name = f"{MODEL_FOLDER}/{CONFIG_NAME}"
    file = payload.model[name]
    if provider == CPU or not isinstance(file, Path):
        return payload
    config = replace(load(file.parent), engine=EngineConfig(provider))
    return replace(payload, model={**payload.model, name: dump(config)})
