"""The stages of a recipe, in the order of the build. `runner.build` and `plan.make` are loops over them.

Their order is that of `options.STAGES`. Those of a candidate are listed for each candidate of a search, bundle and gate
for each target.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.build.options import CANDIDATE_STAGES
from edgepack.errors import RecipeInvalidError
from edgepack.imported.classifier import ClassifierStage
from edgepack.imported.examples import ExamplesStage
from edgepack.imported.graphs import GraphsStage
from edgepack.imported.rows import ImportedRowsStage
from edgepack.imported.shipment import ImportedShipment
from edgepack.recipe.model import (
    MOST_RUNS,
    AnyRecipe,
    Candidate,
    CustomRecipe,
    EncoderRecipe,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    Recipe,
    distinct,
)
from edgepack.recipe.training import FromTeacher
from edgepack.recipe.validate_imported import read_handler
from edgepack.stages.bundle import BundleStage, Shipment
from edgepack.stages.chain import Candidates, Chain
from edgepack.stages.combine import CombineStage
from edgepack.stages.data import DataStage
from edgepack.stages.export import ExportStage
from edgepack.stages.folder_rows import FolderRowsStage
from edgepack.stages.gate import GateStage
from edgepack.stages.linear import LinearStage
from edgepack.stages.load import LoadStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.select import SelectStage
from edgepack.stages.shipments import LinearShipment, TrainedShipment
from edgepack.stages.stage import Stage
from edgepack.stages.train import StudentStage, TeacherStage
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.stages.width_pruning import WidthPruningStage
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.model_config import CPU


@dataclass(frozen=True, eq=False)
class RecipeStages:
    """The stages of a recipe. Iteration yields each once, in the order of the build.

    Attributes:
        shared: the stages before the first candidate. The result of the first one is checked against the recipe.
        shipment: what its bundles ship.
        chains: the stages of each candidate by its name, "" without a search; empty if nothing is trained for one.
        deciders: the stages after the last candidate that decide what ships.
    """

    recipe: AnyRecipe
    shared: tuple[Stage[Any], ...]
    shipment: Shipment
    chains: Mapping[str, Chain] = field(default_factory=dict)
    deciders: tuple[Stage[Any], ...] = ()

    @functools.cached_property
    def gates(self) -> Mapping[str, GateStage]:
        """The gate of each target."""
        return {target: GateStage(target, BundleStage(target, self.shipment)) for target in self.recipe.targets}

    @functools.cached_property
    def _users(self) -> Mapping[Stage[Any], Sequence[str]]:
        """The stages of all candidates in order, each with the names of those that share it."""
        users: dict[Stage[Any], list[str]] = {}
        for name, chain in self.chains.items():
            for stage in chain.stages:
                users.setdefault(stage, []).append(name)
        return users

    @functools.cached_property
    def labels(self) -> Mapping[Stage[Any], str]:
        """The searched values that the candidates of a stage share, if others have another one."""
        some = {stage: names for stage, names in self._users.items() if len(names) < len(self.chains)}
        return _labels(some, self.recipe.candidates if isinstance(self.recipe, Recipe) else ())

    def __iter__(self) -> Iterator[Stage[Any]]:
        of_targets = (stage for gate in self.gates.values() for stage in (gate.bundle, gate))
        return iter((*self.shared, *self._users, *self.deciders, *of_targets))

    def name(self, stage: Stage[Any]) -> str:
        """Stage and label: `student model=./nano`."""
        return f"{stage.name} {self.labels.get(stage, '')}".rstrip()

    def candidates_of(self, stage: Stage[Any]) -> tuple[str, ...]:
        """The names of the candidates that share `stage`; empty without a search."""
        return tuple(filter(None, self._users.get(stage, ())))

    def owners(self, stage: Stage[Any]) -> tuple[str, ...]:
        """The names of the candidates that share `stage`; empty if all of them do."""
        found = self.candidates_of(stage)
        return found if len(found) < len(self.chains) else ()

    def recipe_of(self, stage: Stage[Any]) -> AnyRecipe:
        """The recipe, with the values of the first candidate that has `stage`."""
        users = self._users.get(stage)
        return self.chains[users[0]].recipe if users else self.recipe


def stages_of(recipe: AnyRecipe, context: BuildContext) -> RecipeStages:
    """The stages of a recipe of any kind.

    Raises:
        RecipeInvalidError: what it ships does not run on one of its targets.
    """
    if isinstance(recipe, LinearRecipe):
        return _linear(recipe, context)
    if isinstance(recipe, FolderRecipe):
        return _loaded(recipe)
    return _trained(recipe) if isinstance(recipe, Recipe) else _imported(recipe, context)


def _trained(recipe: Recipe) -> RecipeStages:
    rows = DataStage(recipe.data)
    linear = LinearStage(rows) if recipe.has_linear else None
    teacher = None if recipe.teacher is None else TeacherStage(recipe.teacher, rows)
    recipes = {candidate.name: candidate.recipe for candidate in recipe.candidates} or {"": recipe}
    chains = {name: _chain(candidate, rows, teacher) for name, candidate in recipes.items()}
    select = None if recipe.search is None else SelectStage(recipe.search, recipe.gates, rows, chains)
    return _with_encoder(recipe, rows, linear, teacher, chains, select)


def _loaded(recipe: FolderRecipe) -> RecipeStages:
    """The stages of a model that was trained elsewhere: those of a student without its training."""
    rows = FolderRowsStage(recipe.data, recipe.labels)
    linear = LinearStage(rows) if recipe.has_linear else None
    model = LoadStage(recipe.model, rows)
    scales = QuantizeStage(recipe.quantize, recipe.data.calibration, recipe.data.seed, None, rows, model)
    export = ExportStage(recipe.quantize, recipe.targets, rows, model, scales)
    return _with_encoder(recipe, rows, linear, None, {"": Chain(recipe, (model,), scales, export)}, None)


def _with_encoder(
    recipe: EncoderRecipe,
    rows: Stage[DataArtifact],
    linear: LinearStage | None,
    teacher: TeacherStage | None,
    chains: Mapping[str, Chain],
    select: SelectStage | None,
) -> RecipeStages:
    candidates = Candidates(chains, select)
    combine = None if linear is None else CombineStage(recipe.linear, recipe.gates, rows, linear, candidates)
    shared = _present(rows, linear, teacher)
    shipment = TrainedShipment(shared, rows, linear, candidates, combine)
    return RecipeStages(recipe, shared, shipment, chains, _present(select, combine))


def _chain(recipe: Recipe, rows: DataStage, teacher: TeacherStage | None) -> Chain:
    section = recipe.student
    untrimmed = section.model_copy(update={"vocabulary": "keep"})
    # A teacher that gives neither soft labels nor weights is not an input of the student.
    teaches = section.distill is not None or isinstance(section.model, FromTeacher)
    student = StudentStage(untrimmed.model_copy(update={"width": 1.0}), rows, teacher if teaches else None)
    models: list[Stage[ModelArtifact]] = [student]
    if section.is_width_pruned:
        models.append(WidthPruningStage(untrimmed, rows, student, teacher))
    if section.trimming is not None:
        models.append(VocabularyTrimmingStage(section.trimming, recipe.data.columns, rows, models[-1]))
    model = models[-1]
    scales = QuantizeStage(recipe.quantize, recipe.data.calibration, recipe.data.seed, section, rows, model)
    export = ExportStage(recipe.quantize, recipe.targets, rows, model, scales)
    return Chain(recipe, tuple(models), scales, export)


def _linear(recipe: LinearRecipe, context: BuildContext) -> RecipeStages:
    gpu = _gpu_target(recipe, context)
    if gpu is not None:
        raise RecipeInvalidError(
            f"`linear: only` ships a linear model, and the target {gpu} has a GPU",
            why="a linear model runs on the CPU",
            fix="name a target without a GPU, such as linux-x86_64 or linux-aarch64",
        )
    rows = DataStage(recipe.data)
    linear = LinearStage(rows)
    return RecipeStages(recipe, (rows, linear), LinearShipment(recipe, rows, linear))


def _imported(recipe: CustomRecipe | ImportedTextRecipe, context: BuildContext) -> RecipeStages:
    gpu = _gpu_target(recipe, context)
    if gpu is not None and recipe.quantize.method != "none":
        raise RecipeInvalidError(
            f"`quantize.method` is {recipe.quantize.method}, and the target {gpu} has a GPU",
            why="ONNX Runtime's INT8 is for CPUs",
            fix="build it for that target with `--set quantize.method=none`, and for the others with another build",
        )
    rows: ExamplesStage | ImportedRowsStage
    graphs: GraphsStage | ClassifierStage
    if isinstance(recipe, CustomRecipe):
        rows = ExamplesStage(Path(recipe.examples), str(read_handler(Path(recipe.handler)).item))
        graphs = GraphsStage(recipe.model, Path(recipe.handler), recipe.requirements, recipe.quantize, rows)
    else:
        calibration = MOST_RUNS if recipe.quantize.method == "ptq" else 0
        rows = ImportedRowsStage(recipe.data, recipe.model.outputs, calibration)
        graphs = ClassifierStage(recipe.model, recipe.quantize, rows)
    return RecipeStages(recipe, (rows, graphs), ImportedShipment(recipe, rows, graphs))


def _gpu_target(recipe: AnyRecipe, context: BuildContext) -> str | None:
    return next((target for target in recipe.targets if context.known(target).provider != CPU), None)


def _present(*stages: Stage[Any] | None) -> tuple[Stage[Any], ...]:
    return tuple(stage for stage in stages if stage is not None)


def _labels(users: Mapping[Stage[Any], Sequence[str]], candidates: Sequence[Candidate]) -> dict[Stage[Any], str]:
    """The searched values that the candidates of a stage share. Labels of stages of one name differ."""
    values = {candidate.name: candidate.values for candidate in candidates}
    labels: dict[Stage[Any], str] = {}
    for stage_name in CANDIDATE_STAGES:
        own = {stage: names for stage, names in users.items() if stage.name == stage_name}
        texts = []
        for first, *others in own.values():
            shared = [
                f"{key}={value}"
                for key, value in values[first]
                if all((key, value) in values[other] for other in others)
            ]
            texts.append(", ".join(shared) if others else first)
        labels.update(zip(own, distinct(texts), strict=True))
    return labels
