"""The stages of a recipe, by kind of recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.stage_lists import ORDER, ordered

from edgepack.build import preflight
from edgepack.build.options import CANDIDATE_STAGES, STAGES, BuildOptions
from edgepack.build.recipe_stages import stages_of
from edgepack.errors import RecipeInvalidError, UsageError
from edgepack.recipe.model import CustomRecipe, FolderRecipe, ImportedTextRecipe, LinearRecipe, Recipe
from edgepack.stages.stage import PlannedRows
from edgepack.stages.train import PlannedJob, TrainingStage
from edgepack.targets.context import BuildContext
from edgepack.training import devices, environment
from edgepack_runtime.bundle.model_config import CPU, CUDA

COMMON: dict[str, Any] = {"edgepack": 1, "name": "a", "version": "1.0.0"}
SPLITS = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
MODEL = {"graph": "a.onnx", "vocab": "v.txt", "labels": ("a", "b")}


def context(provider: str = CPU) -> BuildContext:
    return cast(BuildContext, SimpleNamespace(known=lambda target: SimpleNamespace(provider=provider)))


def trained(**more: Any) -> Recipe:
    nano = {"model": {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}}
    return Recipe.model_validate({**COMMON, "data": SPLITS, "student": nano, **more})


def linear(**more: Any) -> LinearRecipe:
    return LinearRecipe.model_validate({**COMMON, "data": SPLITS, "linear": "only", **more})


def text_model(**more: Any) -> ImportedTextRecipe:
    return ImportedTextRecipe.model_validate({**COMMON, "model": MODEL, "data": {"test": "t.tsv"}, **more})


def folder(**more: Any) -> FolderRecipe:
    given = {"folder": "/a/trained", "labels": ("a", "b"), "max_length": 16}
    data = {"train": "a.tsv", "test": "t.tsv"}
    return FolderRecipe.model_validate({**COMMON, "model": given, "data": data, **more})


def of_several_graphs(**more: Any) -> CustomRecipe:
    return custom(model={"graph": {"detect": "a.onnx", "recognize": "b.onnx"}}, **more)


def custom(**more: Any) -> CustomRecipe:
    given = {"model": {"graph": "a.onnx"}, "handler": str(HANDLER), "examples": "examples.jsonl"}
    return CustomRecipe.model_validate({**COMMON, "task": "custom", **given, **more})


HANDLER = Path(__file__).parents[3] / "recipes" / "file-type" / "handler.py"
TARGETS = ["bundle", "gate", "bundle", "gate"]
NANO = {"model": {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}}


def of_everything(**more: Any) -> Recipe:
    """With every stage that a recipe may have which trains a model."""
    student = {**NANO, "width": 0.5, "vocabulary": "trim"}
    return trained(teacher=NANO, student=student, search={"over": {"student.epochs": [1]}}, **more)


def test_the_order_of_all_stages() -> None:
    """As `--until` and `--from` take it."""
    assert STAGES == ORDER


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        (linear, {"data", "linear"}),
        (trained, {"data", "linear", "student", "quantize", "export", "combine"}),
        (of_everything, {*ORDER} - {"examples", "graphs", "model", "bundle", "gate"}),
        (folder, {"data", "linear", "model", "quantize", "export", "combine"}),
        (text_model, {"data", "graphs"}),
        (custom, {"examples", "graphs"}),
        (of_several_graphs, {"examples", "graphs"}),
    ],
)
def test_every_kind_of_recipe_has_its_stages_in_that_order(recipe: Any, names: set[str]) -> None:
    """No others: the one test that a further stage of a recipe fails."""
    stages = stages_of(recipe(targets=("a", "b")), context())
    assert [stage.name for stage in stages] == ordered(names) + TARGETS
    known: set[Any] = set()
    for stage in stages:
        assert known.issuperset(stage.needs)
        known.add(stage)


def test_the_stages_of_a_candidate_are_named_as_such() -> None:
    student = {"model": {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}, "width": 0.5, "vocabulary": "trim"}
    [chain] = stages_of(trained(student=student), context()).chains.values()
    assert tuple(stage.name for stage in chain.stages) == CANDIDATE_STAGES
    assert chain.stages[-1] is chain.last


def test_a_stage_that_a_recipe_lacks_is_not_asked_for() -> None:
    with pytest.raises(UsageError, match="no stage student"):
        preflight.check_options(stages_of(linear(), context()), BuildOptions("student"))


def test_a_linear_model_does_not_run_on_a_gpu() -> None:
    with pytest.raises(RecipeInvalidError, match="the target gpu has a GPU"):
        stages_of(linear(targets=("gpu",)), context(CUDA))


def test_int8_of_an_imported_model_does_not_run_on_a_gpu() -> None:
    with pytest.raises(RecipeInvalidError, match="is ptq, and the target gpu has a GPU"):
        stages_of(text_model(targets=("gpu",), quantize={"method": "ptq"}), context(CUDA))
    stages_of(text_model(targets=("gpu",)), context(CUDA))


def test_equal_stages_are_one_stage() -> None:
    one, two = (stages_of(trained(), context()) for _ in range(2))
    assert {*one.shared, *one.chains[""].stages} == {*two.shared, *two.chains[""].stages}
    other = stages_of(trained(quantize={"method": "none"}), context())
    assert other.chains[""].models == one.chains[""].models
    assert other.chains[""].quantize != one.chains[""].quantize


@pytest.mark.parametrize(("distill", "read"), [(None, ["data", "student"]), ({}, ["data", "teacher", "student"])])
def test_width_pruning_waits_for_a_teacher_that_it_learns_from(distill: Any, read: list[str]) -> None:
    nano = {"model": {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}}
    student = {**nano, "width": 0.5, "distill": distill}
    [chain] = stages_of(trained(teacher=nano, student=student), context()).chains.values()
    assert [stage.name for stage in chain.model.needs] == read


@pytest.mark.parametrize(
    ("recipe", "until", "due"),
    [
        *((trained, until, until not in ("data", "linear")) for until in ("data", "linear", "student", "export", None)),
        *((linear, until, until == "bundle") for until in ("data", "linear", "bundle")),
        *((text_model, until, until == "gate") for until in ("data", "graphs", "gate")),
        *((custom, until, until == "bundle") for until in ("examples", "graphs", "bundle")),
    ],
)
def test_packages_are_checked_by_what_trains_or_packs(recipe: Any, until: str | None, due: bool) -> None:
    assert preflight.is_due(stages_of(recipe(), context()), BuildOptions(until)) == due


def test_a_further_training_needs_its_devices_and_has_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but its place in the chain is told of it."""

    class FurtherStage(TrainingStage):
        name = "further"
        version = 1
        recipe_keys = {"": "student"}  # noqa: RUF012 - never changed

        @property
        def training(self) -> PlannedJob:
            return PlannedJob(self.section, chain.models[0])

    required: list[tuple[str, str]] = []
    monkeypatch.setattr(devices, "require", lambda device, key: required.append((device, key)))
    monkeypatch.setattr(environment, "start", lambda: None)
    found = stages_of(trained(), context())
    [chain] = found.chains.values()
    section = chain.models[0].section.model_copy(update={"device": "gpu:1"})
    further = FurtherStage(section, chain.models[0].rows)
    longer = replace(found, chains={"": replace(chain, models=(*chain.models, further))})
    preflight._check_devices(longer, longer.chains[""].models[0], BuildOptions())
    assert required == [("auto", "student.device"), ("gpu:1", "student.device")]
    about = further.about(PlannedRows({"train": 64}))
    assert about.startswith("at most ") and about.endswith("gpu:1")
