"""The ordered list of stage calls of a recipe: the inputs, the cache key and the work of each.

The order is data, linear and teacher; then student, narrow, prune, quantize and export for each candidate of a search;
then select and wide; then bundle and gate for each target. A recipe without `search` has one chain from student to
export, and no select. `runner.build` and `plan.make` are loops over these calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    LinearArtifact,
    ModelArtifact,
    NarrowedArtifact,
    PrunedArtifact,
    ScalesArtifact,
    SelectArtifact,
    WideArtifact,
)
from edgepack.export import target_variants
from edgepack.pipeline import cache_keys
from edgepack.pipeline.calls import Calls, Results, Shipped, StageCall, Work, bundle_call, gate_call
from edgepack.pipeline.given_calls import GivenCalls
from edgepack.pipeline.linear_calls import LinearCalls, data_call, linear_call
from edgepack.pipeline.options import CANDIDATE_STAGES
from edgepack.pipeline.stages import (
    export,
    narrow,
    prune,
    quantize,
    select,
    text_payload,
    train,
    wide,
)
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import (
    AnyRecipe,
    Calibration,
    Candidate,
    Columns,
    LinearRecipe,
    Quantize,
    Recipe,
    Search,
    distinct,
)
from edgepack.recipe.training import Distill, FromTeacher, Pruning, Student, Teacher
from edgepack.results import Build, Delivery, Failure
from edgepack.targets import local
from edgepack.targets.context import BuildContext
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.model_config import LINEAR_NAME


@dataclass(frozen=True)
class Chain:
    """The calls of one student, from its training to its exported files. `recipe` has the values of its candidate."""

    recipe: Recipe
    student: StageCall[ModelArtifact]
    narrow: StageCall[NarrowedArtifact] | None
    prune: StageCall[PrunedArtifact] | None
    quantize: StageCall[ScalesArtifact]
    export: StageCall[ExportArtifact]

    @property
    def calls(self) -> list[StageCall[Any]]:
        """The calls in order."""
        every = (self.student, self.narrow, self.prune, self.quantize, self.export)
        return [call for call in every if call is not None]

    @property
    def model(self) -> StageCall[ModelArtifact]:
        """The call that makes the model that is quantized and exported."""
        return self.prune or self.narrow or self.student

    def train_seconds(self, results: Results) -> float:
        """Seconds of training: of the student and, if it is narrowed, of the training after the cut."""
        trainings: list[StageCall[Any]] = [self.student, *([self.narrow] if self.narrow else [])]
        return float(sum(results[call].artifact.train_seconds for call in trainings))


class StageCalls(Calls):
    """The stage calls of a recipe that trains its model.

    Candidates follow one another. A call that several of them share comes with the first of them.
    """

    def __init__(self, recipe: Recipe, context: BuildContext) -> None:
        self.data = data_call(recipe.data)
        super().__init__(recipe, context, self.data)
        self.trained = recipe
        self.linear = linear_call(self.data) if recipe.has_linear else None
        self.teacher = None if recipe.teacher is None else _teacher(recipe.teacher, self.data)
        # By name of the candidate; "" without a search.
        recipes = {candidate.name: candidate.recipe for candidate in recipe.candidates} or {"": recipe}
        new_chain = _chains(self.data, self.teacher, context)
        self.chains = {name: new_chain(candidate) for name, candidate in recipes.items()}
        self.select = None if recipe.search is None else _select(recipe.search, recipe.gates, self.data, self.chains)
        self.wide = None if self.linear is None else _wide(self, self.linear)
        ways = () if self.wide is None else (self.wide,)
        self.bundles = {
            target: bundle_call(self, target, (self.data, self.ships, *ways), functools.partial(self._shipped, target))
            for target in recipe.targets
        }
        self.gates = {
            target: gate_call(context, target, packed, functools.partial(self._weight_bytes, target))
            for target, packed in self.bundles.items()
        }
        self._order = list(dict.fromkeys(self._all()))
        self._labels = _labels(self.chains, recipe.candidates)

    def _all(self) -> Iterator[StageCall[Any]]:
        yield self.data
        if self.linear is not None:
            yield self.linear
        if self.teacher is not None:
            yield self.teacher
        for chain in self.chains.values():
            yield from chain.calls
        if self.select is not None:
            yield self.select
        if self.wide is not None:
            yield self.wide
        for target in self.trained.targets:
            yield self.bundles[target]
            yield self.gates[target]

    @property
    def candidates(self) -> Sequence[str]:
        return tuple(self.chains)

    def _shipped(self, target: str, results: Results) -> Shipped:
        chain, read = self.chosen(results), results[self.data]
        exported = results[chain.export]
        linear, chosen = results.artifact(self.linear), results.artifact(self.wide)
        beside = None
        if linear is not None and chosen is not None and chosen.config is not None:
            score = chosen.ships.test_scores[chain.recipe.gates.metric or chosen.metric]
            beside = text_payload.Beside(linear.folder / LINEAR_NAME, chosen.config, score)
        model = text_payload.of_export(
            exported.artifact.for_target(target), beside, text_payload.ancestors_of(chain.recipe)
        )
        return Shipped(
            chain.recipe,
            [read, exported],
            functools.partial(text_payload.make, chain.recipe, model, read.artifact),
            beside and [asdict(beside.config), sha256_file(beside.linear)],
        )

    def _weight_bytes(self, target: str, results: Results) -> int:
        """Bytes of the weights in the bundle of a target."""
        chosen = results.artifact(self.wide)
        if chosen is not None:
            return chosen.ships.weight_bytes
        return results[self.chosen(results).export].artifact.for_target(target).shipped_model.onnx_bytes

    def candidates_of(self, call: StageCall[Any]) -> tuple[str, ...]:
        if call.stage not in CANDIDATE_STAGES or not self.trained.candidates:
            return ()
        return tuple(name for name, chain in self.chains.items() if call in chain.calls)

    def owners(self, call: StageCall[Any]) -> tuple[str, ...]:
        found = self.candidates_of(call)
        return found if len(found) < len(self.chains) else ()

    def label(self, call: StageCall[Any]) -> str:
        return self._labels.get(call, "")

    @property
    def ships(self) -> StageCall[Any]:
        """The call that decides which export ships."""
        return self.select or self.chains[""].export

    def chosen(self, results: Results) -> Chain:
        """The chain that ships."""
        return self.chains["" if self.select is None else results[self.select].artifact.chosen]

    def build(
        self,
        results: Results,
        deliveries: Sequence[Delivery] = (),
        failures: Sequence[Failure] = (),
        left_out: Sequence[Failure] = (),
    ) -> Build:
        chain = self.chosen(results)
        return Build(
            chain.recipe,
            results[self.data].artifact,
            results.artifact(self.teacher),
            results[chain.student].artifact,
            results[chain.quantize].artifact,
            results[chain.export].artifact,
            tuple(deliveries),
            tuple(failures),
            results.artifact(self.select),
            tuple(left_out),
            results.artifact(chain.narrow),
            results.artifact(chain.prune),
            results.artifact(self.linear),
            results.artifact(self.wide),
        )


def _labels(chains: Mapping[str, Chain], candidates: Sequence[Candidate]) -> dict[StageCall[Any], str]:
    """The searched values that the candidates of a call share. Labels differ within a stage."""
    values = {candidate.name: candidate.values for candidate in candidates}
    users: dict[StageCall[Any], list[str]] = {}
    for name, chain in chains.items():
        for call in chain.calls:
            users.setdefault(call, []).append(name)
    labels: dict[StageCall[Any], str] = {}
    for stage in CANDIDATE_STAGES:
        of_stage = {call: names for call, names in users.items() if call.stage == stage and len(names) < len(chains)}
        texts = []
        for first, *others in of_stage.values():
            shared = [
                f"{key}={value}"
                for key, value in values[first]
                if all((key, value) in values[other] for other in others)
            ]
            texts.append(", ".join(shared) if others else first)
        labels.update(zip(of_stage, distinct(texts), strict=True))
    return labels


def _teacher(section: Teacher, rows: StageCall[DataArtifact]) -> StageCall[ModelArtifact]:
    def work(results: Results) -> Work[ModelArtifact]:
        inputs = [*cache_keys.labelled(results[rows]), *cache_keys.weights(section.model)]
        key = cache_keys.make("teacher", train.VERSION, cache_keys.training_section(section), inputs)
        read = results[rows].artifact
        return Work(key, lambda out, checkpoint, progress: train.teacher(section, read, out, progress, checkpoint))

    return StageCall("teacher", ModelArtifact, (rows,), work)


def _chains(
    rows: StageCall[DataArtifact], teacher: StageCall[ModelArtifact] | None, context: BuildContext
) -> Callable[[Recipe], Chain]:
    """A function that returns the chain of a candidate's recipe.

    The constructors are cached: candidates with equal sections and inputs share the call.
    """
    new_student, new_narrow = functools.cache(_student), functools.cache(_narrow)
    new_prune, new_quantize = functools.cache(_prune), functools.cache(_quantize)
    new_export = functools.cache(functools.partial(_export, context=context))

    def chain(recipe: Recipe) -> Chain:
        section = recipe.student
        unpruned = section.model_copy(update={"vocabulary": "keep"})
        student = new_student(unpruned.model_copy(update={"width": 1.0}), rows, teacher)
        narrowed = new_narrow(unpruned, rows, teacher, student) if section.is_narrowed else None
        trained: StageCall[ModelArtifact] = narrowed or student
        pruned = None
        if section.pruning is not None:
            pruned = new_prune(section.pruning, recipe.data.columns, rows, trained)
        model: StageCall[ModelArtifact] = pruned or trained
        scales = new_quantize(recipe.quantize, recipe.data.calibration, recipe.data.seed, section, rows, model)
        exported = new_export(recipe.quantize, recipe.targets, rows, model, scales)
        return Chain(recipe, student, narrowed, pruned, scales, exported)

    return chain


def _student(
    section: Student, rows: StageCall[DataArtifact], teacher: StageCall[ModelArtifact] | None
) -> StageCall[ModelArtifact]:
    # A teacher that gives neither soft labels nor weights is not an input.
    source = teacher if section.distill is not None or isinstance(section.model, FromTeacher) else None

    def work(results: Results) -> Work[ModelArtifact]:
        inputs = [*cache_keys.labelled(results[rows]), *cache_keys.weights(section.model)]
        inputs += cache_keys.model(results[source]) if source is not None else []
        inputs += cache_keys.unlabelled(results[rows]) if section.distill is not None else []
        key = cache_keys.make("student", train.VERSION, cache_keys.training_section(section), inputs)
        read, model = results[rows].artifact, results.artifact(source)
        return Work(
            key, lambda out, checkpoint, progress: train.student(section, read, model, out, progress, checkpoint)
        )

    return StageCall("student", ModelArtifact, (rows, source) if source is not None else (rows,), work)


def _narrow(
    section: Student,
    rows: StageCall[DataArtifact],
    teacher: StageCall[ModelArtifact] | None,
    student: StageCall[ModelArtifact],
) -> StageCall[NarrowedArtifact]:
    """Without a teacher, the student before the cut is the teacher."""
    source, distill = (student, Distill()) if teacher is None else (teacher, section.distill)

    def work(results: Results) -> Work[NarrowedArtifact]:
        decides = cache_keys.training_section(section) | {
            "width": section.width,
            "distill": distill and cache_keys.dump(distill),
        }
        inputs = [*cache_keys.labelled(results[rows]), *cache_keys.model(results[student])]
        if distill is not None:
            inputs += [*cache_keys.model(results[source]), *cache_keys.unlabelled(results[rows])]
        key = cache_keys.make("narrow", narrow.VERSION, decides, inputs)
        read, uncut, model = results[rows].artifact, results[student].artifact, results[source].artifact
        return Work(
            key,
            lambda out, checkpoint, progress: narrow.run(
                section, distill, read, uncut, model, out, progress, checkpoint
            ),
        )

    return StageCall("narrow", NarrowedArtifact, (rows, source, student), work)


def _prune(
    section: Pruning, columns: Columns, rows: StageCall[DataArtifact], student: StageCall[ModelArtifact]
) -> StageCall[PrunedArtifact]:
    def work(results: Results) -> Work[PrunedArtifact]:
        decides: dict[str, Any] = {"pruning": cache_keys.dump(section)}
        inputs = [
            *cache_keys.labelled(results[rows]),
            *cache_keys.unlabelled(results[rows]),
            *cache_keys.model(results[student]),
        ]
        if section.texts is not None:
            decides["pruning"]["texts"] = Path(section.texts).suffix
            decides["columns"] = columns.texts
            inputs += cache_keys.named("further texts", [sha256_file(Path(section.texts))])
        key = cache_keys.make("prune", prune.VERSION, decides, inputs)
        read, model = results[rows].artifact, results[student].artifact
        return Work(key, lambda out, checkpoint, progress: prune.run(section, columns, read, model, out, progress))

    return StageCall("prune", PrunedArtifact, (rows, student), work)


def _quantize(
    section: Quantize,
    sample: Calibration,
    seed: int,
    training: Student,
    rows: StageCall[DataArtifact],
    student: StageCall[ModelArtifact],
) -> StageCall[ScalesArtifact]:
    def work(results: Results) -> Work[ScalesArtifact]:
        decides = {"quantize": cache_keys.dump(section), "calibration": cache_keys.dump(sample), "seed": seed}
        inputs = [*cache_keys.labelled(results[rows]), *cache_keys.model(results[student])]
        if section.method == "qat":
            decides["training"] = cache_keys.training_section(training)
            inputs += cache_keys.unlabelled(results[rows])
        key = cache_keys.make("quantize", quantize.VERSION, decides, inputs)
        read, model = results[rows].artifact, results[student].artifact
        return Work(
            key,
            lambda out, checkpoint, progress: quantize.run(
                section, sample, seed, training, read, model, out, progress, checkpoint
            ),
        )

    return StageCall("quantize", ScalesArtifact, (rows, student), work)


def _export(
    section: Quantize,
    targets: tuple[str, ...],
    rows: StageCall[DataArtifact],
    student: StageCall[ModelArtifact],
    scales: StageCall[ScalesArtifact],
    context: BuildContext,
) -> StageCall[ExportArtifact]:
    def work(results: Results) -> Work[ExportArtifact]:
        differing = target_variants.wanted(map(context.profile, targets), section)
        decides = {
            "quantize": cache_keys.dump(section),
            "differing": {one.name: names for one, names in differing.items()},
        }
        inputs = [
            *cache_keys.labelled(results[rows]),
            *cache_keys.model(results[student]),
            *cache_keys.scales(results[scales]),
        ]
        key = cache_keys.make("export", export.VERSION, decides, [*inputs, *cache_keys.runtime()], local.host_facts())
        read, model, ranges = results[rows].artifact, results[student].artifact, results[scales].artifact
        return Work(
            key,
            lambda out, checkpoint, progress: export.run(
                section, read, model, ranges, out, progress, differing=differing
            ),
        )

    return StageCall("export", ExportArtifact, (rows, student, scales), work)


def _select(
    section: Search, gates: Gates, rows: StageCall[DataArtifact], chains: Mapping[str, Chain]
) -> StageCall[SelectArtifact]:
    def work(results: Results) -> Work[SelectArtifact]:
        built = {name: chain for name, chain in chains.items() if chain.export in results}
        untried = [name for name in chains if name in results.untried]
        left_out = [name for name in chains if name not in built and name not in untried]
        decides = {
            "prefer": section.prefer,
            "tolerance": section.tolerance_points,
            "gates": cache_keys.gates_section(gates),
            "names": list(built),
            "left_out": left_out,
            "untried": untried,
        }
        inputs = [
            *cache_keys.labelled(results[rows], ("dev",)),
            *(cache_keys.whole(results[one.export]) for one in built.values()),
        ]
        inputs += [each for one in built.values() for each in cache_keys.model(results[one.model])]
        inputs += cache_keys.baseline(gates)
        key = cache_keys.make("select", select.VERSION, decides, [*inputs, *cache_keys.runtime()], local.host_facts())
        read = results[rows].artifact
        entries = {
            name: select.Entry(results[one.model].artifact, results[one.export].artifact, one.train_seconds(results))
            for name, one in built.items()
        }
        return Work(
            key,
            lambda out, checkpoint, progress: select.run(
                section, gates, read, entries, left_out, untried, out, progress
            ),
        )

    return StageCall("select", SelectArtifact, (rows,), work, alternatives=tuple(one.export for one in chains.values()))


def _wide(calls: StageCalls, baseline: StageCall[LinearArtifact]) -> StageCall[WideArtifact]:
    def work(results: Results) -> Work[WideArtifact]:
        exported = results[calls.chosen(results).export]
        inputs = [
            *cache_keys.labelled(results[calls.data], ("dev", "test")),
            cache_keys.whole(results[baseline]),
            cache_keys.whole(exported),
            *cache_keys.runtime(),
        ]
        mode, may_lose = calls.trained.wide, calls.chosen(results).recipe.quantize.max_drop_points
        gates = calls.trained.gates
        decides = {
            "mode": mode,
            "max_drop_points": may_lose if mode == "cascade" else None,
            "gates": cache_keys.gates_section(gates)["accuracy"],
        }
        inputs += cache_keys.baseline(gates)
        key = cache_keys.make("wide", wide.VERSION, decides, inputs, local.host_facts())
        read, plain = results[calls.data].artifact, results[baseline].artifact
        return Work(
            key,
            lambda out, checkpoint, progress: wide.run(
                mode, may_lose, gates, read, plain, exported.artifact, out, progress
            ),
        )

    return StageCall("wide", WideArtifact, (calls.data, baseline, calls.ships), work)


def calls_for(recipe: AnyRecipe, context: BuildContext) -> Calls:
    """The stage calls of a recipe of any kind."""
    if isinstance(recipe, LinearRecipe):
        return LinearCalls(recipe, context)
    return StageCalls(recipe, context) if isinstance(recipe, Recipe) else GivenCalls(recipe, context)
