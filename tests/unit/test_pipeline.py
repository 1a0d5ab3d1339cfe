"""The order of a build, walked with stages that make nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.conftest import pruned_of

from edgepack import pipeline, plan
from edgepack.artifacts import ModelArtifact, PrunedArtifact, SelectArtifact
from edgepack.console import Console
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError, UsageError
from edgepack.nvidia import Nvidia
from edgepack.order import Choice
from edgepack.outcome import Build, Failure, Part
from edgepack.paddle_ml import environment, gpus
from edgepack.paddle_ml.gpus import Card
from edgepack.pipeline import EndOfPart, check_choice, stages_of, walk
from edgepack.recipe.load import load_recipe
from edgepack.recipe.model import Candidate, Recipe
from edgepack.workspace import Workspace

TARGETS = {"linux-x86_64-cpu": ("onnxruntime", "openvino")}


class Stages:
    """Hands out the results of `built`; the bundle of a target in `broken` cannot be made."""

    def __init__(self, built: Build, broken: str) -> None:
        self.called: list[str] = []
        self._built, self._broken = built, broken

    def __getattr__(self, stage: str) -> Any:
        def make(*inputs: Any) -> Any:
            self.called.append(stage if stage != "bundle" else f"bundle {inputs[0]}")
            if stage == "bundle" and inputs[0] == self._broken:
                raise StageFailedError(f"bundle: nothing fits {inputs[0]}", fix="give it up")
            delivery = self._built.deliveries[0]
            artifacts = {"bundle": delivery.bundle, "gate": delivery.gate, "quantize": self._built.scales}
            artifact = artifacts.get(stage) or getattr(self._built, stage)
            return SimpleNamespace(artifact=artifact, digest=stage)

        return make


@pytest.fixture
def two_targets(built: Build) -> Build:
    return replace(built, recipe=built.recipe.model_copy(update={"targets": ("one", "two", "three")}))


def test_a_target_that_fails_ends_the_build(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    with pytest.raises(StageFailedError, match="nothing fits two"):
        walk(two_targets.recipe, stages, Choice(), lambda rows: None)
    assert stages.called == ["data", "teacher", "student", "quantize", "export", "bundle one", "gate", "bundle two"]


def test_the_others_are_built_when_it_is_told_to_keep_going(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    made = walk(two_targets.recipe, stages, Choice(keep_going=True), lambda rows: None)
    assert stages.called[5:] == ["bundle one", "gate", "bundle two", "bundle three", "gate"]
    assert len(made.deliveries) == 2
    assert [(failure.name, failure.error.fix) for failure in made.failures] == [("two", "give it up")]


def test_every_target_is_bundled_before_a_build_until_bundle_ends(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="none")
    with pytest.raises(EndOfPart):
        walk(two_targets.recipe, stages, Choice(until="bundle"), lambda rows: None)
    assert stages.called[5:] == ["bundle one", "bundle two", "bundle three"]


def test_every_target_has_its_own_bundle_and_gate(two_targets: Build) -> None:
    assert stages_of(two_targets.recipe)[5:] == ["bundle", "gate"] * 3


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
        monkeypatch.setattr(f"edgepack.stages.{stage}.run", stand_in(stage))
    monkeypatch.setattr("edgepack.stages.student.check", lambda section: None)
    monkeypatch.setattr("edgepack.targets.wheels.fetch", lambda *inputs: None)
    monkeypatch.setattr("edgepack.nvidia.look", lambda: Nvidia(None, None, (), "no driver", "install one"))
    monkeypatch.setattr(environment, "versions", dict)
    monkeypatch.setattr(environment, "start", lambda: None)

    def run(devices: dict[str, str], *cards: Card, until: Any = "student") -> list[str]:
        def look() -> gpus.Build:
            assert any(device.startswith("gpu") for device in devices.values()), "Paddle is imported for nothing"
            return gpus.Build("3.3.1", "12.6", None, (), cards)

        monkeypatch.setattr(gpus, "look", look)
        trained.clear()
        made = pipeline.run(recipe(tmp_path, devices), Workspace(tmp_path / "w"), Console(quiet=True), Choice(until))
        assert isinstance(made, Part)
        return list(trained)

    return run


def recipe(folder: Path, devices: dict[str, str]) -> Recipe:
    model = {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}
    return Recipe.model_validate({
        "edgepack": 1, "name": "tiny", "version": "0.1.0",
        "data": {split: str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
        **{role: {"model": model, "device": device} for role, device in devices.items()},
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


def test_a_gpu_is_not_asked_of_what_comes_after_the_end(train: Train) -> None:
    assert train({"teacher": "cpu", "student": "gpu"}, until="teacher") == ["teacher on cpu"]
    with pytest.raises(EnvironmentUnfitError, match=r"teacher\.device: gpu"):
        train({"teacher": "gpu", "student": "gpu"}, until="teacher")
    assert train({"teacher": "gpu", "student": "gpu"}, until="data") == []


class Choosing(Stages):
    """`Stages` for a recipe with candidates: those in `broken` cannot be trained, `chosen` goes on."""

    def __init__(self, built: Build, broken: tuple[str, ...] = (), chosen: str = "epochs=2") -> None:
        super().__init__(built, "")
        self.left_out: list[str] = []
        self.compared: list[str] = []
        self._unfit, self._chosen, self._at = broken, chosen, ""

    def of(self, candidate: Candidate) -> Choosing:
        self._at = candidate.name
        self.called.append(candidate.name)
        return self

    def student(self, rows: Any, taught_by: Any) -> Any:
        if self._at in self._unfit:
            raise StageFailedError(f"student: nothing learns with {self._at}", fix="give it up")
        return SimpleNamespace(artifact=replace(self._built.student, steps=int(self._at[-1])), digest=self._at)

    def select(self, learners: dict[str, Any], left_out: list[str]) -> Any:
        self.called.append(f"select from {len(learners)}")
        self.compared = [learner.digest for learner in learners.values()]
        self.left_out = left_out
        return SimpleNamespace(artifact=SelectArtifact(Path(), (), self._chosen, "", 0.5), digest="select")


@pytest.fixture
def three(built: Build) -> Build:
    """A build whose recipe has three candidates."""
    recipes = [
        built.recipe.model_copy(update={"student": built.recipe.student.model_copy(update={"epochs": float(epochs)})})
        for epochs in (1, 2, 3)
    ]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    return replace(built, recipe=built.recipe.with_candidates(candidates))


def test_after_the_choice_the_build_is_that_of_the_chosen_one(three: Build) -> None:
    stages: Any = Choosing(three)
    made = walk(three.recipe, stages, Choice(), lambda rows: None)
    several = ["epochs=1", "epochs=2", "epochs=3", "select from 3", "epochs=2"]
    assert stages.called == ["data", "teacher", *several, "quantize", "export", "bundle linux-x86_64-cpu", "gate"]
    assert made.recipe.student.epochs == 2
    assert made.recipe.candidates == ()
    assert made.student.steps == 2
    assert made.selection is not None


def test_a_candidate_that_fails_ends_the_build(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=2",))
    with pytest.raises(StageFailedError, match="nothing learns with epochs=2") as caught:
        walk(three.recipe, stages, Choice(), lambda rows: None)
    assert caught.value.what.endswith("(candidate epochs=2)")
    assert stages.called[-1] == "epochs=2"


def test_the_others_are_compared_when_it_is_told_to_keep_going(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=2",), chosen="epochs=3")
    heard: list[Failure] = []
    made = walk(three.recipe, stages, Choice(keep_going=True), lambda rows: None, heard.append)
    assert made.student.steps == 3
    assert stages.left_out == ["epochs=2"]
    assert [failure.name for failure in heard] == ["epochs=2"]


def test_without_any_candidate_there_is_nothing_to_keep_going_with(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=1", "epochs=2", "epochs=3"))
    with pytest.raises(StageFailedError, match="nothing learns with epochs=1"):
        walk(three.recipe, stages, Choice(keep_going=True), lambda rows: None)
    assert "select" not in " ".join(stages.called)


def of_vocabularies(built: Build, *vocabularies: str) -> Build:
    """A build whose recipe has a candidate for each; they are named epochs=1, epochs=2 ..."""
    student = built.recipe.student
    recipes = [
        built.recipe.model_copy(update={"student": student.model_copy(update={"vocabulary": vocabulary})})
        for vocabulary in vocabularies
    ]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    return replace(built, recipe=built.recipe.with_candidates(candidates))


class Pruning(Choosing):
    """`Choosing` where students can be pruned, but for those in `whole`; tells what comes after what it works on."""

    def __init__(self, built: Build, whole: tuple[str, ...] = (), chosen: str = "epochs=2") -> None:
        super().__init__(built, (), chosen)
        self._whole = whole

    def prune(self, rows: Any, learner: Any) -> Any:
        if self._at in self._whole:
            raise StageFailedError("prune: there is nothing to prune", fix="give it up")
        self.called.append(f"prune {learner.digest}")
        return SimpleNamespace(artifact=pruned_of(self._built), digest=f"pruned {self._at}")

    def quantize(self, rows: Any, learner: Any) -> Any:
        self.called.append(f"quantize {learner.digest}")
        return SimpleNamespace(artifact=self._built.scales, digest="quantize")


def test_what_is_pruned_goes_on(built: Build) -> None:
    student = built.recipe.student.model_copy(update={"vocabulary": "prune"})
    alone = replace(built, recipe=built.recipe.model_copy(update={"student": student}))
    assert stages_of(alone.recipe)[:6] == ["data", "teacher", "student", "prune", "quantize", "export"]
    stages: Any = Pruning(alone)
    stages._at = "epochs=1"
    made = walk(alone.recipe, stages, Choice(), lambda rows: None)
    assert stages.called[2:4] == ["prune epochs=1", "quantize pruned epochs=1"]
    assert made.student.steps == 1
    assert made.pruned == pruned_of(alone)
    assert [row.stage for row in made.ledger][:4] == ["teacher", "student", "pruned", "static graph"]
    note = "vocabulary 18,000 -> 3,491 tokens; dev 90.0 -> 90.0 %; [UNK] 1.38 -> 2.37 % of dev tokens"
    assert (made.ledger[2].note, made.ledger[2].model_mib) == (note, 22.888)


def test_candidates_are_compared_as_they_are_pruned(built: Build) -> None:
    stages: Any = Pruning(of_vocabularies(built, "keep", "prune", "prune"))
    made = walk(stages._built.recipe, stages, Choice(), lambda rows: None)
    assert stages.compared == ["epochs=1", "pruned epochs=2", "pruned epochs=3"]
    assert "quantize pruned epochs=2" in stages.called
    assert made.pruned is not None
    stages = Pruning(stages._built, chosen="epochs=1")
    made = walk(stages._built.recipe, stages, Choice(), lambda rows: None)
    assert "quantize epochs=1" in stages.called
    assert made.pruned is None
    several = ["student"] * 3 + ["prune"] * 2 + ["select"]
    assert stages_of(stages._built.recipe)[2:8] == several


def test_a_candidate_that_cannot_be_pruned_is_left_out(built: Build) -> None:
    several = of_vocabularies(built, "keep", "prune", "prune")
    stages: Any = Pruning(several, whole=("epochs=2",), chosen="epochs=3")
    with pytest.raises(StageFailedError) as caught:
        walk(several.recipe, stages, Choice(), lambda rows: None)
    assert caught.value.what == "prune: there is nothing to prune (candidate epochs=2)"
    stages = Pruning(several, whole=("epochs=2",), chosen="epochs=3")
    walk(several.recipe, stages, Choice(keep_going=True), lambda rows: None)
    assert stages.compared == ["epochs=1", "pruned epochs=3"]
    assert stages.left_out == ["epochs=2"]
    stages = Pruning(of_vocabularies(built, "prune"), whole=("epochs=1",))
    with pytest.raises(StageFailedError, match="nothing to prune"):
        walk(stages._built.recipe, stages, Choice(keep_going=True), lambda rows: None)


def test_students_and_pruned_ones_may_be_all_that_is_asked_for(built: Build) -> None:
    for until, last in (("student", "epochs=3"), ("prune", "prune epochs=3")):
        stages: Any = Pruning(of_vocabularies(built, "keep", "prune", "prune"))
        with pytest.raises(EndOfPart):
            walk(stages._built.recipe, stages, Choice(until), lambda rows: None)
        assert stages.called[-1] == last
    with pytest.raises(UsageError, match="this recipe has no stage prune"):
        check_choice(built.recipe, Choice("prune"))


def test_a_recipe_with_candidates_has_a_student_for_each_and_a_choice(three: Build) -> None:
    assert stages_of(three.recipe)[:8] == ["data", "teacher", *["student"] * 3, "select", "quantize", "export"]
    assert "select" not in stages_of(three.recipe.candidates[0].recipe)


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
    """Builds of SEARCHED until a stage, whose students are as good as their epochs; says which were trained."""
    trained: list[float] = []
    (tmp_path / "r.yaml").write_text(SEARCHED, encoding="utf-8")

    def make(section: Any, data: Any, teacher: Any, out: Path, *rest: Any) -> ModelArtifact:
        if section.epochs > 8:
            raise StageFailedError("student: it takes too long", fix="fewer epochs")
        trained.append(section.epochs)
        score = replace(built.student.dev_score, value=section.epochs / 10)
        return replace(built.student, folder=out, dev_score=score, parameters=int(section.epochs))

    monkeypatch.setattr("edgepack.stages.student.run", make)

    def run(*settings: str, until: str = "select", console: Console | None = None, **choice: Any) -> Any:
        trained.clear()
        found = load_recipe(tmp_path / "r.yaml", TARGETS, settings)
        quiet = console or Console(quiet=True)
        made = pipeline.run(found, Workspace(tmp_path / "w"), quiet, Choice(until, **choice))
        assert isinstance(made, Part)
        return made, list(trained), plan.make(found, Workspace(tmp_path / "w"))

    return run


def test_a_change_of_the_search_trains_what_is_new_alone(search: Callable[..., Any]) -> None:
    made, trained, _ = search()
    assert trained == [1, 2]
    assert made.selection.chosen == "epochs=2"
    made, trained, _ = search("search.tolerance_points=20")
    assert trained == []
    assert made.selection.chosen == "epochs=1"
    assert search("search={over: {student.epochs: [3, 1, 2]}}")[1] == [3]
    assert search("search=null", "student.epochs=3", until="student")[1] == []
    assert search(start="select")[1] == []
    assert search(start="student")[1] == [1, 2]


def test_candidates_that_share_a_training_are_trained_once(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, built: Build
) -> None:
    """Also when it is made again; one is pruned, and a plan knows which."""

    def make(section: Any, columns: Any, data: Any, student: Any, out: Path, progress: Any) -> PrunedArtifact:
        return replace(pruned_of(built), folder=out, parameters=student.parameters - 1)

    monkeypatch.setattr("edgepack.stages.prune.run", make)
    over = "search={over: {student.vocabulary: [keep, {prune: {min_count: 2, characters: all}}]}}"
    made, trained, planned = search(over, "student.epochs=3")
    assert trained == [3]
    pruned = "vocabulary={prune: {min_count: 2, characters: all}}"
    assert made.selection.chosen == pruned
    assert [row.stage for row in made.ledger] == ["student", "pruned"]
    found = [(one.stage, one.candidate, one.state) for one in planned.stages][1:5]
    assert found == [
        ("student", "vocabulary=keep", "cached"), ("student", pruned, "cached"), ("prune", pruned, "cached"),
        ("select", None, "cached"),
    ]  # fmt: skip
    about = "keeps the tokens that occur at least 2 times in the training texts, and every Chinese character"
    assert planned.stages[3].about == about
    assert search(over, "student.epochs=3", start="student")[1] == [3]


def test_further_texts_are_read_before_a_student_is_trained_for_them(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "field.txt").write_text("挺好\n", encoding="utf-8")  # a dev row
    field = "search={over: {student.vocabulary: [keep, {prune: {texts: field.txt}}]}}"
    with pytest.raises(RecipeInvalidError, match=r"field\.txt cannot be used: 1 error"):
        search(field, "student.epochs=3")
    assert search("search=null", "student.epochs=3", until="student")[1] == [3]


def test_a_plan_tells_of_each_candidate(search: Callable[..., Any]) -> None:
    search("search={over: {student.epochs: [2, 4]}}")
    _, _, planned = search(until="data")
    found = [(stage.candidate, stage.state) for stage in planned.stages if stage.stage in ("student", "select")]
    assert found == [("epochs=1", "to run"), ("epochs=2", "cached"), (None, "to run")]
    values = {value.key: value.value for value in planned.values}
    assert values["search.over.student.epochs"] == [1, 2]
    assert "student.epochs" not in values  # there is no one value of it
    _, _, planned = search()
    assert [stage.state for stage in planned.stages][:5] == ["cached"] * 4 + ["to run"]
    assert planned.stages[1].about.startswith("at most 0.2 M weights; 1 step of 32 (2 rows x 1 epoch)")


def test_a_part_tells_the_test_score_of_the_chosen_one_alone(search: Callable[..., Any]) -> None:
    made, _, _ = search(until="student")
    assert [(one.stage, one.candidate) for one in made.made] == [
        ("data", None), ("student", "epochs=1"), ("student", "epochs=2"),
    ]  # fmt: skip
    assert made.ledger == ()
    made, _, _ = search()
    assert [row.stage for row in made.ledger] == ["student"]


def test_stages_of_candidates_are_told_by_name_and_number(
    search: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    search("search={over: {student.epochs: [2]}}")
    capsys.readouterr()
    search("search={over: {student.epochs: [1, 9, 2]}}", console=Console(), keep_going=True)
    told = capsys.readouterr().err
    for line in (
        "[2/9] student epochs=1\n",
        "warning: this candidate is left out: student: it takes too long (candidate epochs=9)\n",
        "[4/9] student epochs=2 (cached)\n",
        "[5/9] select\n",
        "1 candidate could not be trained: epochs=9\n",
    ):
        assert line in told, line


def test_a_failed_candidate_is_tried_again_and_may_be_chosen_then(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    several = "search={over: {student.epochs: [1, 9]}}"
    made, _, _ = search(several, keep_going=True)
    assert made.selection.left_out == ("epochs=9",)
    assert [failure.name for failure in made.untrained] == ["epochs=9"]
    with pytest.raises(StageFailedError, match="too long"):
        search(several)
    assert search("search={over: {student.epochs: [1]}}")[0].selection.left_out == ()


def test_every_candidate_is_looked_at_before_the_teacher_is_trained(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[Any] = []
    monkeypatch.setattr("edgepack.stages.student.check", lambda section: probed.append(section.model.scratch.layers))
    text = SEARCHED.replace("student:", "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\nstudent:")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    over = "{student.model.scratch.layers: [2, 3], student.epochs: [1, 2], student.device: [cpu]}"
    found = load_recipe(tmp_path / "r.yaml", TARGETS, [f"search={{over: {over}}}"])
    pipeline.run(found, Workspace(tmp_path / "w"), Console(quiet=True), Choice("teacher"))
    assert probed == [2, 3]
    gpu = [f"search={{over: {over.replace('[cpu]', '[cpu, gpu]')}}}", "teacher.epochs=1"]
    found = load_recipe(tmp_path / "r.yaml", TARGETS, gpu)
    monkeypatch.setattr(gpus, "look", lambda: gpus.Build("3.3.1", None, None, (), ()))
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu was asked for"):
        pipeline.run(found, Workspace(tmp_path / "w"), Console(quiet=True), Choice("student"))


def test_a_candidate_that_cannot_be_loaded_is_named_before_the_teacher_is_trained(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(section: Any) -> None:
        if section.model.scratch.layers in broken:
            raise StageFailedError("its weights are damaged")

    monkeypatch.setattr("edgepack.stages.student.check", check)
    text = SEARCHED.replace("student:", "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\nstudent:")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    over = "search={over: {student.model.scratch.layers: [2, 3]}}"
    found = load_recipe(tmp_path / "r.yaml", TARGETS, [over])

    def teacher(name: str, *, keep_going: bool) -> Any:
        choice = Choice("teacher", keep_going=keep_going)
        return pipeline.run(found, Workspace(tmp_path / name), Console(quiet=True), choice)

    broken = [3]
    with pytest.raises(StageFailedError) as caught:
        teacher("w", keep_going=False)
    assert caught.value.what == "its weights are damaged (candidate layers=3)"
    assert teacher("w", keep_going=True).made[-1].stage == "teacher"
    broken = [2, 3]
    with pytest.raises(StageFailedError) as caught:
        teacher("v", keep_going=True)
    assert caught.value.what == "its weights are damaged (candidate layers=2)"
