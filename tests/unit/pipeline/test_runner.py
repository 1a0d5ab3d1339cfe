"""Builds whose stages are stand-ins: which of them run, on what, and what a build makes of their results."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import narrowed_of, pruned_of

from edgepack.artifacts import (
    Artifact,
    ExportArtifact,
    LedgerRow,
    ModelArtifact,
    PrunedArtifact,
    ScalesArtifact,
    Score,
    SelectArtifact,
)
from edgepack.console.console import Console
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError, UsageError
from edgepack.evaluation import Latency
from edgepack.pipeline import plan, preflight, runner
from edgepack.pipeline.calls import StageCalls
from edgepack.pipeline.options import BuildOptions
from edgepack.pipeline.workspace import Key, Workspace
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Candidate, Recipe, Search
from edgepack.recipe.training import Distill
from edgepack.results import Build, Made, Part
from edgepack.targets.context import BuildContext
from edgepack.targets.local import Interpreter
from edgepack.targets.profiles import load_profiles
from edgepack.training import devices as gpus
from edgepack.training import environment
from edgepack.training.devices import Card
from edgepack.util import versions
from edgepack.util.nvidia import Nvidia

TARGETS = {"linux-x86_64-cpu"}


def stages_of(recipe: Recipe) -> list[str]:
    return [call.stage for call in StageCalls(recipe, BuildContext())]


def function_of(stage: str) -> str:
    """The dotted name of the function that runs a stage."""
    name = f"train.{stage}" if stage in ("teacher", "student") else f"{stage}.run"
    return f"edgepack.pipeline.stages.{name}"


class Stages:
    """Stand-ins of the stages: each notes its call in `called` and returns what `built` has.

    A model holds its name, which is what it was made of: `2` is a student of two epochs. A call whose name is in
    `broken` fails. Each student takes a minute of the runner's clock. `chosen` wins the search.
    """

    def __init__(self, built: Build, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called: list[str] = []
        self.broken: tuple[str, ...] = ()
        self.chosen = "epochs=2"
        self.left_out: list[str] = []
        self.untried: list[str] = []
        self.packed: list[tuple[LedgerRow, ...]] = []
        self.seconds = 1000.0
        self._built, self._folder = built, folder
        for stage in (
            "data",
            "teacher",
            "student",
            "narrow",
            "prune",
            "quantize",
            "export",
            "select",
            "bundle",
            "gate",
        ):
            monkeypatch.setattr(function_of(stage), self._stand_in(stage, getattr(self, f"_{stage}")))
        for check in ("check_data", "check_training"):
            monkeypatch.setattr(preflight, check, lambda *inputs: None)
        monkeypatch.setattr(runner, "monotonic", lambda: self.seconds)
        monkeypatch.setattr("edgepack.pipeline.stages.bundle.inputs", lambda *inputs, **options: [])
        monkeypatch.setattr(
            "edgepack.targets.local.runner", lambda *inputs, **options: Interpreter(Path("p"), "3.11.2")
        )
        for split in ("train", "dev", "test"):
            (folder / f"{split}.tsv").write_text("text\tlabel\n", encoding="utf-8")
        (folder / "ernie-base").mkdir()

    def build(self, recipe: Recipe, options: BuildOptions = BuildOptions()) -> Any:  # noqa: B008 (frozen)
        self.called.clear()
        profile = load_profiles()["linux-x86_64-cpu"]
        context = BuildContext(profiles=dict.fromkeys(recipe.targets, profile))
        return runner.build(recipe, Workspace(self._folder / "w"), Console(), options, context)

    def _stand_in(self, stage: str, make: Callable[..., Artifact]) -> Callable[..., Artifact]:
        def run(*inputs: Any, **options: Any) -> Artifact:
            out = next(value for value in inputs if isinstance(value, Path) and value.name == "out")
            models = [value for value in inputs if isinstance(value, ModelArtifact)]
            return replace(make(out, [(one.folder / "name").read_text() for one in models], inputs), folder=out)

        return run

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name in self.broken:
            raise StageFailedError(f"{name} cannot be made", fix="give it up")

    def _model(self, out: Path, name: str) -> None:
        (out / "name").write_text(name, encoding="utf-8")

    def _data(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        self._call("data")
        for split in ("train", "dev", "test"):
            (out / f"{split}.jsonl").write_text("", encoding="utf-8")
        return self._built.data

    def _teacher(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        self._call("teacher")
        self._model(out, "teacher")
        assert self._built.teacher is not None
        return self._built.teacher

    def _student(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        epochs = f"{inputs[0].epochs:g}"
        self._call(f"student {epochs}")
        self._model(out, epochs)
        self.seconds += 60
        return replace(self._built.student, steps=int(inputs[0].epochs))

    def _narrow(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        student, teacher = models
        self._call(f"narrow {student} as {teacher} says")
        self._model(out, f"narrowed {student}")
        return narrowed_of(self._built)

    def _prune(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        name = f"{inputs[0].min_count} of {models[0]}"
        self._call(f"prune {name}")
        self._model(out, f"pruned {name}")
        return pruned_of(self._built)

    def _quantize(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        self._call(f"quantize {models[0]}")
        return self._built.scales

    def _export(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        self._call(f"export {models[0]}")
        return self._built.export

    def _select(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        _, _, _, entries, left_out, untried, *_ = inputs
        names = [(entry.model.folder / "name").read_text() for entry in entries.values()]
        self._call(f"select from {', '.join(names)}")
        self.left_out, self.untried = list(left_out), list(untried)
        return SelectArtifact(out, (), self.chosen, "", 0.5)

    def _bundle(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        _, target, _, _, ledger, *_ = inputs
        self._call(f"bundle {target}")
        self.packed.append(ledger)
        return replace(self._built.deliveries[0].bundle, target=target)

    def _gate(self, out: Path, models: list[str], inputs: Any) -> Artifact:
        self._call(f"gate {inputs[0].target}")
        gate: Any = self._built.deliveries[0].gate
        return replace(gate, target=inputs[0].target)


@pytest.fixture
def stages(built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(built, tmp_path, monkeypatch)


UP_TO_EXPORT = ["data", "teacher", "student 3", "quantize 3", "export 3"]


@pytest.fixture
def two_targets(built: Build) -> Recipe:
    return built.recipe.model_copy(update={"targets": ("one", "two", "three")})


def test_a_target_that_fails_ends_the_build(stages: Stages, two_targets: Recipe) -> None:
    stages.broken = ("bundle two",)
    with pytest.raises(StageFailedError, match="bundle two cannot be made"):
        stages.build(two_targets)
    assert stages.called == [*UP_TO_EXPORT, "bundle one", "gate one", "bundle two"]


def test_the_others_are_built_when_it_is_told_to_keep_going(stages: Stages, two_targets: Recipe) -> None:
    stages.broken = ("bundle two",)
    made = stages.build(two_targets, BuildOptions(keep_going=True))
    assert stages.called[5:] == ["bundle one", "gate one", "bundle two", "bundle three", "gate three"]
    assert [item.bundle.target for item in made.deliveries] == ["one", "three"]
    assert [(failure.name, failure.error.fix) for failure in made.failures] == [("two", "give it up")]


def test_a_gate_that_breaks_down_is_a_failure_of_its_target(stages: Stages, two_targets: Recipe) -> None:
    stages.broken = ("gate two",)
    made = stages.build(two_targets, BuildOptions(keep_going=True))
    assert [item.bundle.target for item in made.deliveries] == ["one", "three"]
    assert [failure.name for failure in made.failures] == ["two"]


def test_every_target_is_bundled_before_a_build_until_bundle_ends(stages: Stages, two_targets: Recipe) -> None:
    stages.broken = ("bundle two",)
    made = stages.build(two_targets, BuildOptions(until="bundle", keep_going=True))
    assert stages.called[5:] == ["bundle one", "bundle two", "bundle three"]
    assert [one.stage for one in made.made][5:] == ["bundle", "bundle"]
    assert [failure.name for failure in made.failures] == ["two"]


def test_only_a_gate_that_passes_is_kept(stages: Stages, built: Build) -> None:
    """What failed or could not be decided is measured again; all else is taken from the workspace."""
    stages.build(built.recipe)
    assert stages.called == [*UP_TO_EXPORT, "bundle linux-x86_64-cpu", "gate linux-x86_64-cpu"]
    stages.build(built.recipe)
    assert stages.called == ["gate linux-x86_64-cpu"]


def test_every_target_has_its_own_bundle_and_gate(two_targets: Recipe) -> None:
    assert stages_of(two_targets)[5:] == ["bundle", "gate"] * 3


def test_a_stage_that_failed_runs_again(stages: Stages, built: Build) -> None:
    stages.broken = ("quantize 3",)
    for calls in (UP_TO_EXPORT[:4], ["quantize 3"]):
        with pytest.raises(StageFailedError, match="quantize 3 cannot be made"):
            stages.build(built.recipe)
        assert stages.called == calls
    stages.broken = ()
    stages.build(built.recipe, BuildOptions("export"))
    assert stages.called == ["quantize 3", "export 3"]


@pytest.mark.parametrize("damage", ["weights", "artifact"])
def test_a_damaged_result_is_made_again(
    stages: Stages, built: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Its files are not as they were sealed; or they are, and this version cannot read what they describe."""
    stages.build(built.recipe, BuildOptions("export"))
    (folder,) = (path for path in (tmp_path / "w" / "student").iterdir() if path.is_dir())
    if damage == "weights":
        (folder / "name").write_text("other", encoding="utf-8")
    else:
        workspace, key = Workspace(tmp_path / "w"), Key("student", folder.name)
        workspace.build(key, lambda out: replace(built.scales, folder=out))
    assert "damaged" not in capsys.readouterr().err
    stages.build(built.recipe, BuildOptions("export"))
    assert stages.called[0] == "student 3"
    assert "[3/7] student\n      cached result is damaged; rebuilding\n" in capsys.readouterr().err


def test_an_upgrade_of_edgepack_or_python_trains_nothing_again(
    stages: Stages, built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_run() -> list[str]:
        planned = plan.make(built.recipe, Workspace(tmp_path / "w"))
        return [stage.stage for stage in planned.stages if stage.state == "to run"]

    def upgrade(**installed: str) -> None:
        found = importlib.metadata.version
        monkeypatch.setattr(importlib.metadata, "version", lambda name: installed.get(name) or found(name))

    monkeypatch.setattr("edgepack.bundle.wheels.wanted", lambda *inputs, **options: None)
    stages.build(built.recipe)
    assert to_run() == ["gate"]  # it failed
    monkeypatch.setattr(versions, "__version__", "99.0.0")
    patched = f"{versions.minor_version(platform.python_version())}.99"
    monkeypatch.setattr(platform, "python_version", lambda: patched)
    assert to_run() == ["bundle", "gate"]
    upgrade(onnxruntime="99.0.0", onnx="99.0.0")
    assert to_run() == ["export", "bundle", "gate"]
    upgrade(paddleslim="99.0.0")
    assert to_run() == ["quantize", "export", "bundle", "gate"]
    upgrade(paddlepaddle="99.0.0")
    assert to_run() == ["teacher", "student", "quantize", "export", "bundle", "gate"]


Train = Callable[..., list[str]]


@pytest.fixture
def train(tmp_path: Path, built: Build, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Builds until the student on a machine with the GPUs `cards`; trainings take no time, and are listed."""
    trained: list[str] = []
    for split, rows in {"train": "好\t1\n差\t0", "dev": "挺好\t1\n很差\t0", "test": "真好\t1\n真差\t0"}.items():
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}\n", encoding="utf-8")

    def stand_in(stage: str) -> Callable[..., Any]:
        def make(section: Any, *inputs: Any) -> Any:
            trained.append(f"{stage} on {section.device}")
            out = next(value for value in inputs if isinstance(value, Path))
            return replace(built.student, folder=out)

        return make

    for stage in ("teacher", "student"):
        monkeypatch.setattr(function_of(stage), stand_in(stage))
    monkeypatch.setattr("edgepack.pipeline.stages.train.check_student", lambda section: None)
    monkeypatch.setattr("edgepack.bundle.wheels.fetch", lambda *inputs, **options: None)
    monkeypatch.setattr("edgepack.util.nvidia.look", lambda: Nvidia(None, None, (), "no driver", "install one"))
    monkeypatch.setattr(environment, "versions", dict)
    monkeypatch.setattr(environment, "start", lambda: None)

    def run(devices: dict[str, str], *cards: Card, until: Any = "student", width: float = 1.0) -> list[str]:
        def look() -> gpus.PaddleBuild:
            assert any(device.startswith("gpu") for device in devices.values()), "Paddle is imported for nothing"
            return gpus.PaddleBuild("3.3.1", "12.6", None, (), cards)

        monkeypatch.setattr(gpus, "look", look)
        trained.clear()
        asked, results = recipe(tmp_path, devices, width), Workspace(tmp_path / "w")
        made = runner.build(asked, results, Console(quiet=True), BuildOptions(until))
        assert isinstance(made, Part)
        return list(trained)

    return run


def recipe(folder: Path, devices: dict[str, str], width: float = 1.0) -> Recipe:
    model = {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}
    sections: dict[str, Any] = {role: {"model": model, "device": device} for role, device in devices.items()}
    sections["student"]["width"] = width
    return Recipe.model_validate({
        "edgepack": 1, "name": "tiny", "version": "0.1.0",
        "data": {split: str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
        **sections,
    })  # fmt: skip


def test_a_gpu_that_cannot_be_used_shows_before_the_first_training(train: Train, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        train({"teacher": "cpu", "student": "gpu"})
    assert caught.value.what == "student.device: gpu was asked for and cannot be used"
    assert "no driver" in caught.value.why
    assert list((tmp_path / "w" / "data").glob("*/seal.json"))
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]


def test_a_gpu_is_not_asked_of_what_is_not_trained_any_more(train: Train) -> None:
    devices = {"teacher": "gpu", "student": "gpu:0"}
    assert train(devices, Card(0, "NVIDIA H200", "9.0", 143771)) == ["teacher on gpu", "student on gpu:0"]
    assert train(devices) == []


def test_a_gpu_is_asked_of_what_is_trained_once_more(train: Train) -> None:
    devices = {"teacher": "cpu", "student": "gpu"}
    card = Card(0, "NVIDIA H200", "9.0", 143771)
    assert train(devices, card) == ["teacher on cpu", "student on gpu"]
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu"):
        train(devices, until="narrow", width=0.5)


def test_a_gpu_is_not_asked_of_what_comes_after_the_end(train: Train) -> None:
    assert train({"teacher": "cpu", "student": "gpu"}, until="teacher") == ["teacher on cpu"]
    with pytest.raises(EnvironmentUnfitError, match=r"teacher\.device: gpu"):
        train({"teacher": "gpu", "student": "gpu"}, until="teacher")
    assert train({"teacher": "gpu", "student": "gpu"}, until="data") == []


@pytest.fixture
def three(built: Build) -> Recipe:
    """A recipe with three candidates."""
    student = built.recipe.student
    recipes = [
        built.recipe.model_copy(update={"student": student.model_copy(update={"epochs": float(epochs)})})
        for epochs in (1, 2, 3)
    ]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}})
    return built.recipe.model_copy(update={"search": section}).with_candidates(candidates)


KEEP_GOING = BuildOptions(keep_going=True)


def test_after_the_choice_the_build_is_that_of_the_chosen_one(stages: Stages, three: Recipe) -> None:
    made = stages.build(three)
    several = [f"{stage} {epochs}" for epochs in (1, 2, 3) for stage in ("student", "quantize", "export")]
    after = ["select from 1, 2, 3", "bundle linux-x86_64-cpu", "gate linux-x86_64-cpu"]
    assert stages.called == ["data", "teacher", *several, *after]
    assert made.recipe.student.epochs == 2
    assert made.recipe.candidates == ()
    assert made.student.steps == 2
    assert made.selection is not None


def test_a_candidate_that_fails_ends_the_build(stages: Stages, three: Recipe) -> None:
    stages.broken = ("student 2",)
    with pytest.raises(StageFailedError) as caught:
        stages.build(three)
    assert caught.value.what == "student 2 cannot be made (candidate epochs=2)"
    assert stages.called[-1] == "student 2"


def test_the_others_are_compared_when_it_is_told_to_keep_going(stages: Stages, three: Recipe) -> None:
    stages.broken, stages.chosen = ("student 2",), "epochs=3"
    made = stages.build(three, KEEP_GOING)
    assert made.student.steps == 3
    assert stages.left_out == ["epochs=2"]
    assert [failure.name for failure in made.left_out] == ["epochs=2"]


def test_a_candidate_may_fail_anywhere_on_its_way(stages: Stages, three: Recipe) -> None:
    stages.broken = ("export 1",)
    stages.build(three, KEEP_GOING)
    assert stages.left_out == ["epochs=1"]
    assert "select from 2, 3" in stages.called


@pytest.mark.parametrize(
    ("minutes", "there", "broken", "untried"),
    [
        (0.5, (), (), ["epochs=2", "epochs=3"]),
        (1, (), (), ["epochs=2", "epochs=3"]),
        (1.5, (), (), ["epochs=3"]),
        (0.5, (1,), (), ["epochs=3"]),
        (0.5, (3,), (), ["epochs=2"]),
        (0.5, (1, 2, 3), (), []),
        (0.5, (), ("export 1",), ["epochs=3"]),
        (5, (), (), []),
    ],
)
def test_no_further_candidate_is_begun_when_the_minutes_have_passed(
    stages: Stages,
    three: Recipe,
    minutes: float,
    there: tuple[int, ...],
    broken: tuple[str, ...],
    untried: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One is built in any case, and those that are there cost nothing."""
    for number in there:
        stages.build(three.candidates[number - 1].recipe, BuildOptions("export"))
    stages.broken, stages.chosen = broken, "epochs=2" if broken else "epochs=1"
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}, "minutes": minutes})
    capsys.readouterr()
    made = stages.build(three.model_copy(update={"search": section}).with_candidates(three.candidates), KEEP_GOING)
    assert stages.untried == untried
    told = capsys.readouterr().err
    assert [name for name in ("epochs=1", "epochs=2", "epochs=3") if f"{name} is not tried" in told] == untried
    assert stages.left_out == (["epochs=1"] if broken else [])
    assert made.selection is not None


def test_without_any_candidate_there_is_nothing_to_keep_going_with(stages: Stages, three: Recipe) -> None:
    stages.broken = ("student 1", "student 2", "student 3")
    with pytest.raises(StageFailedError, match="student 1 cannot be made"):
        stages.build(three, KEEP_GOING)
    assert stages.called[-1] == "student 3"


def of_vocabularies(built: Build, *vocabularies: Any) -> Recipe:
    """A recipe with a candidate for each; they are named epochs=1, epochs=2 ..."""
    recipes = [with_student(built, vocabulary=vocabulary) for vocabulary in vocabularies]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    section = Search.model_validate({"over": {"student.vocabulary": list(vocabularies)}})
    return built.recipe.model_copy(update={"search": section}).with_candidates(candidates)


def with_student(built: Build, **values: Any) -> Recipe:
    student = type(built.recipe.student).model_validate(built.recipe.student.model_dump(by_alias=True) | values)
    return built.recipe.model_copy(update={"student": student})


def test_what_is_pruned_goes_on(stages: Stages, built: Build) -> None:
    recipe = with_student(built, vocabulary="prune")
    assert stages_of(recipe)[:6] == ["data", "teacher", "student", "prune", "quantize", "export"]
    made = stages.build(recipe)
    assert stages.called[2:5] == ["student 3", "prune 1 of 3", "quantize pruned 1 of 3"]
    assert made.student.steps == 3
    assert made.pruned is not None
    assert [row.stage for row in made.ledger][:4] == ["teacher", "student", "pruned", "static graph"]
    note = "vocabulary 18,000 -> 3,491 tokens; dev 90.0 -> 90.0 %; [UNK] 1.38 -> 2.37 % of dev tokens"
    assert (made.ledger[2].note, made.ledger[2].model_mib) == (note, 22.888)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_ledger_is_in_the_metric_of_the_gates(stages: Stages, built: Build, metric: str) -> None:
    """In every row that a stage makes, and in the bundle; the receipt of the target is in it by itself."""
    gates = built.recipe.gates
    assert gates.accuracy is not None
    asked = gates.model_copy(update={"accuracy": gates.accuracy.model_copy(update={"metric": metric})})
    recipe = built.recipe.model_copy(update={"gates": asked})
    made = stages.build(recipe)
    points = 2 if metric == "macro_f1" else 0  # below accuracy
    told = [(row.score.metric, round(100 * row.score.value, 2)) for row in made.ledger[:5]]
    assert told == [(metric, value - points) for value in (91.2, 89.7, 89.7, 89.7, 89.55)]
    assert [row.score for row in stages.packed[0]] == [row.score for row in made.ledger[:5]]
    part = Part(recipe, (Made("student", built.student), Made("export", built.export)))
    assert [row.score for row in part.ledger] == [row.score for row in made.ledger[1:5]]


def test_what_is_narrowed_goes_on(stages: Stages, built: Build) -> None:
    for vocabulary, after in {"keep": "narrowed 3", "prune": "pruned 1 of narrowed 3"}.items():
        recipe = with_student(built, width=0.75, vocabulary=vocabulary)
        made = stages.build(recipe, BuildOptions(start="student"))
        asked = [one for one in stages.called if one.startswith(("narrow", "prune", "quantize"))]
        assert asked == [
            "narrow 3 as teacher says",
            *(["prune 1 of narrowed 3"] if vocabulary == "prune" else []),
            f"quantize {after}",
        ]
        assert stages_of(recipe)[2:-4] == ["student", "narrow", *(["prune"] if vocabulary == "prune" else [])]
        assert made.narrowed is not None
        rows = [row.stage for row in made.ledger]
        assert rows[:3] == ["teacher", "student", "narrowed"]
        assert ("pruned" in rows) == (vocabulary == "prune")
    assert made.ledger[2].note == (
        "9.4 M weights, 1161 steps; 12 -> 9 heads, 1,248 -> 936 neurons a layer; dev 90.0 -> 90.0 %"
    )
    assert (made.ledger[2].model_mib, made.ledger[2].seconds) == (35.858, 28.8)


def test_candidates_are_compared_as_they_are_pruned(stages: Stages, built: Build) -> None:
    recipe = of_vocabularies(built, "keep", "prune", {"prune": {"min_count": 2}})
    made = stages.build(recipe)
    assert "select from 3, pruned 1 of 3, pruned 2 of 3" in stages.called
    assert made.pruned is not None
    stages.chosen = "epochs=1"
    assert stages.build(recipe, BuildOptions(start="select")).pruned is None
    several = ["student", "quantize", "export", "prune", "quantize", "export", "select"]
    assert stages_of(of_vocabularies(built, "keep", "prune"))[2:9] == several


def test_a_candidate_that_cannot_be_pruned_is_left_out(stages: Stages, built: Build) -> None:
    several = of_vocabularies(built, "keep", "prune", {"prune": {"min_count": 2}})
    stages.broken, stages.chosen = ("prune 1 of 3",), "epochs=3"
    with pytest.raises(StageFailedError) as caught:
        stages.build(several)
    assert caught.value.what == "prune 1 of 3 cannot be made (candidate epochs=2)"
    stages.build(several, KEEP_GOING)
    assert "select from 3, pruned 2 of 3" in stages.called
    assert stages.left_out == ["epochs=2"]
    with pytest.raises(StageFailedError, match="prune 1 of 3"):
        stages.build(of_vocabularies(built, "prune"), KEEP_GOING)


def test_a_recipe_with_candidates_has_a_student_for_each_and_a_choice(three: Recipe) -> None:
    chain = ["student", "quantize", "export"]
    assert stages_of(three) == ["data", "teacher", *chain * 3, "select", "bundle", "gate"]
    assert "select" not in stages_of(three.candidates[0].recipe)


SEARCHED = """\
edgepack: 1
name: tiny
version: 0.1.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
student: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}, device: cpu}
search: {over: {student.epochs: [1, 2]}}
"""


@pytest.fixture
def search(train: Train, tmp_path: Path, built: Build, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Builds of SEARCHED until a stage, whose students are as good as their epochs; says what was made of candidates.

    A file has as many milliseconds as its student has epochs, times ten when it is not quantized.
    """
    made: list[str] = []
    (tmp_path / "r.yaml").write_text(SEARCHED, encoding="utf-8")

    def student(section: Any, data: Any, teacher: Any, out: Path, *rest: Any) -> ModelArtifact:
        if section.epochs > 8:
            raise StageFailedError("student: it takes too long", fix="fewer epochs")
        made.append(f"student {section.epochs:g}")
        (out / "weights").write_text(f"{section.epochs}", encoding="utf-8")
        return replace(built.student, folder=out, parameters=int(section.epochs))

    def quantize(section: Any, *inputs: Any) -> ScalesArtifact:
        student, out = inputs[4:6]
        made.append(f"quantize {student.parameters} {section.method}")
        return ScalesArtifact(out, (), len(section.method))

    def export(section: Any, *inputs: Any, **options: Any) -> ExportArtifact:
        student, scales, out = inputs[1:4]
        made.append(f"export {student.parameters} {section.method}")
        (out / "onnx-int8").mkdir()
        (out / "onnx-int8" / "epochs").write_text(str(student.parameters), encoding="utf-8")
        (out / "onnx-int8" / "ms").write_text(str(student.parameters * (1 if scales.calibration_rows == 3 else 10)))
        return replace(built.export, folder=out)

    def latency(folders: list[Path], *rest: Any, stage: str) -> list[Latency]:
        return [Latency(float((folder / "ms").read_text(encoding="utf-8")), None) for folder in folders]

    def score(metric: str, rows: Any, answers: Path) -> Score:
        return Score(int((answers / "epochs").read_text(encoding="utf-8")) / 10, 0, 1, 2, 0.95)

    for stage, stand_in in {"student": student, "quantize": quantize, "export": export}.items():
        monkeypatch.setattr(function_of(stage), stand_in)
    monkeypatch.setattr("edgepack.pipeline.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.evaluation.answers", lambda predictor, *rest: predictor)
    monkeypatch.setattr("edgepack.evaluation.latency", latency)
    monkeypatch.setattr("edgepack.evaluation.score", score)

    def run(*settings: str, until: str = "select", console: Console | None = None, **choice: Any) -> Any:
        made.clear()
        found = load_recipe(tmp_path / "r.yaml", TARGETS, settings)
        quiet = console or Console(quiet=True)
        part = runner.build(found, Workspace(tmp_path / "w"), quiet, BuildOptions(until, **choice))
        assert isinstance(part, Part)
        return part, list(made), plan.make(found, Workspace(tmp_path / "w"))

    return run


def chain(epochs: int, method: str = "ptq") -> list[str]:
    return [f"student {epochs}", f"quantize {epochs} {method}", f"export {epochs} {method}"]


BOTH = "search={over: {student.epochs: [1, 2], quantize.method: [ptq, none]}}"


def test_a_change_of_the_search_makes_what_is_new_alone(search: Callable[..., Any]) -> None:
    made, did, _ = search()
    assert did == [*chain(1), *chain(2)]
    assert made.selection.chosen == "epochs=2"
    made, did, _ = search("search.tolerance_points=20")
    assert did == []
    assert made.selection.chosen == "epochs=1"
    assert search("search={over: {student.epochs: [3, 1, 2]}}")[1] == chain(3)
    assert search("search=null", "student.epochs=3", until="export")[1] == []
    assert search(start="select")[1] == []
    assert search(start="student")[1] == [*chain(1), *chain(2)]


def test_candidates_that_share_a_student_train_it_once_and_show_it_once(
    search: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made, did, planned = search(BOTH, console=Console())
    assert did == [*chain(1), *chain(1, "none")[1:], *chain(2), *chain(2, "none")[1:]]
    assert made.selection.chosen == "epochs=2, method=ptq"
    told = capsys.readouterr().err
    for line in (
        "[1/14] data\n",
        "[2/14] student epochs=1\n",
        "[3/14] quantize epochs=1, method=ptq\n",
        "[5/14] quantize epochs=1, method=none\n",
        "[7/14] student epochs=2\n",
        "[11/14] export epochs=2, method=none\n",
        "[12/14] select\n",
    ):
        assert line in told, line
    assert [row.stage for row in made.ledger][:2] == ["student", "static graph"]
    assert [stage.state for stage in planned.stages] == ["cached"] * 12 + ["to run"] * 2
    assert search(BOTH)[1] == []
    assert search(BOTH, start="student")[1] == did  # once, also when all is made again
    assert search(BOTH, start="export")[1] == [one for one in did if one.startswith("export")]


def test_a_build_may_end_in_the_midst_of_all_candidates(search: Callable[..., Any]) -> None:
    assert search(BOTH, until="student")[1] == ["student 1", "student 2"]
    quantized = [f"quantize {epochs} {method}" for epochs in (1, 2) for method in ("ptq", "none")]
    made, did, planned = search(BOTH, until="quantize")
    assert did == quantized
    assert made.selection is None
    states = [(stage.stage, stage.candidate, stage.state) for stage in planned.stages[1:5]]
    assert states == [
        ("student", "epochs=1", "cached"),
        ("quantize", "epochs=1, method=ptq", "cached"),
        ("export", "epochs=1, method=ptq", "to run"),
        ("quantize", "epochs=1, method=none", "cached"),
    ]
    assert search(BOTH, until="export")[1] == [one.replace("quantize", "export") for one in quantized]


def test_what_all_candidates_share_is_nobodys(search: Callable[..., Any]) -> None:
    made, _, planned = search("search={over: {quantize.method: [ptq, none]}}", until="student")
    assert [(one.stage, one.candidates) for one in made.made] == [("data", ()), ("student", ())]
    assert [row.stage for row in made.ledger] == ["student"]
    assert (planned.stages[1].candidate, planned.stages[2].candidate) == (None, "method=ptq")


def test_candidates_that_share_a_training_are_trained_once(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, built: Build
) -> None:
    """Also when it is made again; one is pruned, and a plan knows which."""

    def make(section: Any, columns: Any, data: Any, student: Any, out: Path, progress: Any) -> PrunedArtifact:
        (out / "weights").write_text("fewer", encoding="utf-8")
        return replace(pruned_of(built), folder=out, parameters=student.parameters - 1)

    monkeypatch.setattr("edgepack.pipeline.stages.prune.run", make)
    over = "search={over: {student.vocabulary: [keep, {prune: {min_count: 2, characters: all}}]}, tolerance_points: 99}"
    assert search(over, "student.epochs=3", until="student")[1] == ["student 3"]
    part, did, planned = search(over, "student.epochs=3", until="prune")
    assert did == []
    assert [(one.stage, len(one.candidates)) for one in part.made] == [("data", 0), ("student", 0), ("prune", 1)]
    made, did, planned = search(over, "student.epochs=3")
    assert did == ["quantize 3 ptq", "export 3 ptq", "quantize 2 ptq", "export 2 ptq"]
    pruned = "vocabulary={prune: {min_count: 2, characters: all}}"
    assert made.selection.chosen == pruned  # its file is faster
    assert [row.stage for row in made.ledger][:2] == ["student", "pruned"]
    found = [(one.stage, one.candidate, one.state) for one in planned.stages][1:9]
    assert found == [
        ("student", None, "cached"),
        *((stage, "vocabulary=keep", "cached") for stage in ("quantize", "export")),
        *((stage, pruned, "cached") for stage in ("prune", "quantize", "export")),
        ("select", None, "cached"),
        ("bundle", None, "to run"),
    ]
    about = "keeps the tokens that occur at least 2 times in the training texts, and every Chinese character"
    assert planned.stages[4].about == about
    assert search(over, "student.epochs=3", start="student")[1][0] == "student 3"
    with pytest.raises(UsageError, match="this recipe has no stage prune"):
        search("search=null", until="prune")


def test_candidates_of_several_widths_train_the_whole_student_once(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, built: Build
) -> None:
    def make(section: Any, distill: Any, data: Any, student: Any, teacher: Any, out: Path, *rest: Any) -> Any:
        assert (distill, teacher) == (Distill(), student)  # there is no other
        (out / "weights").write_text(f"{section.width}", encoding="utf-8")
        told = {"folder": out, "parameters": round(student.parameters * section.width), "train_seconds": 2.0}
        return replace(narrowed_of(built), **told)

    monkeypatch.setattr("edgepack.pipeline.stages.narrow.run", make)
    over = "search={over: {student.width: [1.0, 0.75, 0.5]}, tolerance_points: 99}"
    part, did, planned = search(over, "student.epochs=4", until="narrow")
    assert did == ["student 4"]
    assert [(one.stage, one.candidates) for one in part.made[1:]] == [
        ("student", ()), ("narrow", ("width=0.75",)), ("narrow", ("width=0.5",)),
    ]  # fmt: skip
    about = "cut to 0.75 of its width, at most 0.2 M weights; 1 step of 32 (2 rows x 4 epochs)"
    narrow = [(one.candidate, one.about) for one in planned.stages if one.stage == "narrow"]
    assert narrow[0][1].startswith(about.replace("1 step", "4 steps"))
    assert [candidate for candidate, _ in narrow] == ["width=0.75", "width=0.5"]
    made, did, planned = search(over, "student.epochs=4")
    assert did == [f"{stage} {n} ptq" for n in (4, 3, 2) for stage in ("quantize", "export")]
    assert made.selection.chosen == "width=0.5"  # its file is faster
    seconds = [one.train_seconds for one in made.selection.candidates]
    assert seconds == [35.2, 37.2, 37.2]  # with that of the whole student
    assert [row.stage for row in made.ledger][:2] == ["student", "narrowed"]
    assert search("search=null", "student.epochs=4", "student.width=0.5", until="export")[1] == []
    assert "student 4" not in search(over, "student.epochs=4", start="narrow")[1]
    with pytest.raises(UsageError, match="this recipe has no stage narrow"):
        search("search=null", until="narrow")


def test_further_texts_are_read_before_a_student_is_trained_for_them(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "field.txt").write_text("挺好\n", encoding="utf-8")  # a dev row
    field = "search={over: {student.vocabulary: [keep, {prune: {texts: field.txt}}]}}"
    with pytest.raises(RecipeInvalidError, match=r"field\.txt cannot be used: 1 error"):
        search(field, "student.epochs=3")
    assert search("search=null", "student.epochs=3", until="student")[1] == ["student 3"]


def test_a_floor_for_a_class_that_the_data_lack_ends_a_build_before_it_trains(search: Callable[..., Any]) -> None:
    with pytest.raises(RecipeInvalidError, match="`recall_of` names '负'") as caught:
        search("search=null", "gates.accuracy={per_class: {recall_of: {负: 0.8}}}", "student.epochs=3", until="student")
    assert caught.value.fix.startswith("the data have")
    search("search=null", "gates.accuracy={per_class: {recall: 0.8}}", "student.epochs=3", until="student")


def test_a_plan_tells_of_each_candidate(search: Callable[..., Any]) -> None:
    search("search={over: {student.epochs: [2, 4]}}")
    _, _, planned = search(until="data")
    found = [(stage.stage, stage.candidate, stage.state) for stage in planned.stages]
    assert found[1:8] == [
        ("student", "epochs=1", "to run"),
        ("quantize", "epochs=1", "to run"),
        ("export", "epochs=1", "to run"),
        ("student", "epochs=2", "cached"),
        ("quantize", "epochs=2", "cached"),
        ("export", "epochs=2", "cached"),
        ("select", None, "to run"),
    ]
    values = {value.key: value.value for value in planned.values}
    assert values["search.over.student.epochs"] == [1, 2]
    assert "student.epochs" not in values  # there is no one value of it
    _, _, planned = search()
    assert [stage.state for stage in planned.stages] == ["cached"] * 8 + ["to run"] * 2
    assert planned.stages[1].about.startswith("at most 0.2 M weights; 1 step of 32 (2 rows x 1 epoch)")


def test_a_plan_tells_of_each_section_in_a_list(search: Callable[..., Any]) -> None:
    budgets = "gates={latency: {by_length: [{max_tokens: 8, p95_ms: 900}, {max_tokens: 16, p50_ms: 800}]}}"
    _, _, planned = search("search=null", budgets, until="data")
    values = {value.key: (value.value, value.given) for value in planned.values}
    assert values["gates.latency.by_length[1].max_tokens"] == (16, True)
    assert values["gates.latency.by_length[1].p95_ms"] == (None, False)


def test_a_part_tells_the_test_score_of_the_chosen_one_alone(search: Callable[..., Any]) -> None:
    made, _, _ = search(until="student")
    assert [(one.stage, one.candidates) for one in made.made] == [
        ("data", ()), ("student", ("epochs=1",)), ("student", ("epochs=2",)),
    ]  # fmt: skip
    assert made.ledger == ()
    made, _, _ = search()
    assert [row.stage for row in made.ledger] == ["student", "static graph", "float ONNX", "INT8 ONNX"]


def test_stages_of_candidates_are_told_by_name_and_number(
    search: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    search("search={over: {student.epochs: [2]}}")
    capsys.readouterr()
    search("search={over: {student.epochs: [1, 9, 2]}}", console=Console(), keep_going=True)
    told = capsys.readouterr().err
    for line in (
        "[2/13] student epochs=1\n",
        "warning: this candidate is left out: student: it takes too long (candidate epochs=9)\n",
        "[8/13] student epochs=2 (cached)\n",
        "[11/13] select\n",
        "1 candidate failed: epochs=9\n",
    ):
        assert line in told, line


def test_a_failed_candidate_is_tried_again_and_may_be_chosen_then(search: Callable[..., Any]) -> None:
    several = "search={over: {student.epochs: [1, 9]}}"
    made, _, _ = search(several, keep_going=True)
    assert made.selection.left_out == ("epochs=9",)
    assert [failure.name for failure in made.left_out] == ["epochs=9"]
    with pytest.raises(StageFailedError, match="too long"):
        search(several)
    assert search("search={over: {student.epochs: [1]}}")[0].selection.left_out == ()


def test_a_student_that_fails_fails_once_for_all_candidates_that_share_it(search: Callable[..., Any]) -> None:
    several = "search={over: {student.epochs: [9, 1], quantize.method: [ptq, none]}}"
    made, did, _ = search(several, keep_going=True)
    assert did[0] == "student 1"
    assert made.selection.left_out == ("epochs=9, method=ptq", "epochs=9, method=none")
    assert [failure.error.what for failure in made.left_out] == [
        f"student: it takes too long (candidate {name})" for name in made.selection.left_out
    ]


def test_a_build_that_is_out_of_time_goes_on_next_time(search: Callable[..., Any]) -> None:
    soon = "search={over: {student.epochs: [1, 2, 3]}, minutes: 1e-9}"
    for count in (1, 2, 3):
        made, did, planned = search(soon)
        assert did == chain(count)
        assert [one.name for one in made.selection.candidates] == [f"epochs={n}" for n in range(1, count + 1)]
        untried = tuple(f"epochs={n}" for n in range(count + 1, 4))
        assert made.selection.untried == untried
        assert ("not tried" in made.selection.why) == bool(untried)
        assert sum(stage.state == "cached" for stage in planned.stages) == 1 + 3 * count + (count == 3)
    assert search(soon)[1] == []


def test_every_candidate_is_looked_at_before_the_teacher_is_trained(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[Any] = []
    monkeypatch.setattr(
        "edgepack.pipeline.stages.train.check_student", lambda section: probed.append(section.model.scratch.layers)
    )
    text = SEARCHED.replace("student:", "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\nstudent:")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    over = "{student.model.scratch.layers: [2, 3], student.epochs: [1, 2], student.device: [cpu]}"
    found = load_recipe(tmp_path / "r.yaml", TARGETS, [f"search={{over: {over}}}"])
    runner.build(found, Workspace(tmp_path / "w"), Console(quiet=True), BuildOptions("teacher"))
    assert probed == [2, 3]
    gpu = [f"search={{over: {over.replace('[cpu]', '[cpu, gpu]')}}}", "teacher.epochs=1"]
    found = load_recipe(tmp_path / "r.yaml", TARGETS, gpu)
    monkeypatch.setattr(gpus, "look", lambda: gpus.PaddleBuild("3.3.1", None, None, (), ()))
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu was asked for"):
        runner.build(found, Workspace(tmp_path / "w"), Console(quiet=True), BuildOptions("student"))


def test_a_candidate_that_cannot_be_loaded_is_named_before_the_teacher_is_trained(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(section: Any) -> None:
        if section.model.scratch.layers in broken:
            raise StageFailedError("its weights are damaged")

    monkeypatch.setattr("edgepack.pipeline.stages.train.check_student", check)
    text = SEARCHED.replace("student:", "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\nstudent:")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    over = "search={over: {student.model.scratch.layers: [2, 3]}}"
    found = load_recipe(tmp_path / "r.yaml", TARGETS, [over])

    def teacher(name: str, *, keep_going: bool) -> Any:
        options = BuildOptions("teacher", keep_going=keep_going)
        return runner.build(found, Workspace(tmp_path / name), Console(quiet=True), options)

    broken = [3]
    with pytest.raises(StageFailedError) as caught:
        teacher("w", keep_going=False)
    assert caught.value.what == "its weights are damaged (candidate layers=3)"
    assert teacher("w", keep_going=True).made[-1].stage == "teacher"
    broken = [2, 3]
    with pytest.raises(StageFailedError) as caught:
        teacher("v", keep_going=True)
    assert caught.value.what == "its weights are damaged (candidate layers=2)"


def test_a_wheel_by_path_is_looked_into_before_the_first_training_and_once(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(target: str, context: BuildContext, progress: Any) -> None:
        looked.append(target)
        if len(looked) == 1:
            raise StageFailedError("it holds no code for this GPU")

    monkeypatch.setattr("edgepack.bundle.site_packages.require_fitting", look)
    monkeypatch.setattr(runner, "BuildContext", lambda: BuildContext(given={"linux-x86_64-cpu": (tmp_path / "a.whl",)}))
    with pytest.raises(StageFailedError, match="no code"):
        train({"teacher": "cpu", "student": "cpu"})
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]
    assert looked == ["linux-x86_64-cpu"] * 2
    assert train({"teacher": "cpu", "student": "cpu"}) == []
    assert len(looked) == 2
