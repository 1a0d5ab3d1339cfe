"""The order of a build, walked with stages that make nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.conftest import narrowed_of, pruned_of

from edgepack import pipeline, plan
from edgepack.artifacts import ExportArtifact, LedgerRow, ModelArtifact, ScalesArtifact, Score
from edgepack.console import Console
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError, UsageError
from edgepack.nvidia import Nvidia
from edgepack.order import Choice
from edgepack.outcome import Build, Failure, Made, Part
from edgepack.paddle_ml import environment, gpus
from edgepack.paddle_ml.gpus import Card
from edgepack.pipeline import stages_of
from edgepack.recipe.load import load_recipe
from edgepack.recipe.model import Candidate, Recipe, Search
from edgepack.recipe.training import Distill
from edgepack.reduced import PrunedArtifact
from edgepack.selection import SelectArtifact
from edgepack.steps import ToRun
from edgepack.targets.measure import Latency
from edgepack.targets.supply import Supply
from edgepack.walk import EndOfPart, Hooks, walk
from edgepack.workspace import Workspace

TARGETS = {"linux-x86_64-cpu"}


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
            if stage == "gate":
                return artifact
            return SimpleNamespace(artifact=artifact, digest=stage)

        return make


@pytest.fixture
def two_targets(built: Build) -> Build:
    return replace(built, recipe=built.recipe.model_copy(update={"targets": ("one", "two", "three")}))


def test_a_target_that_fails_ends_the_build(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    with pytest.raises(StageFailedError, match="nothing fits two"):
        walk(two_targets.recipe, stages, Choice())
    assert stages.called == ["data", "teacher", "student", "quantize", "export", "bundle one", "gate", "bundle two"]


def test_the_others_are_built_when_it_is_told_to_keep_going(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    made = walk(two_targets.recipe, stages, Choice(keep_going=True))
    assert stages.called[5:] == ["bundle one", "gate", "bundle two", "bundle three", "gate"]
    assert len(made.deliveries) == 2
    assert [(failure.name, failure.error.fix) for failure in made.failures] == [("two", "give it up")]


def test_every_target_is_bundled_before_a_build_until_bundle_ends(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="none")
    with pytest.raises(EndOfPart):
        walk(two_targets.recipe, stages, Choice(until="bundle"))
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
    monkeypatch.setattr("edgepack.targets.wheels.fetch", lambda *inputs, **options: None)
    monkeypatch.setattr("edgepack.nvidia.look", lambda: Nvidia(None, None, (), "no driver", "install one"))
    monkeypatch.setattr(environment, "versions", dict)
    monkeypatch.setattr(environment, "start", lambda: None)

    def run(devices: dict[str, str], *cards: Card, until: Any = "student", width: float = 1.0) -> list[str]:
        def look() -> gpus.Build:
            assert any(device.startswith("gpu") for device in devices.values()), "Paddle is imported for nothing"
            return gpus.Build("3.3.1", "12.6", None, (), cards)

        monkeypatch.setattr(gpus, "look", look)
        trained.clear()
        asked, results = recipe(tmp_path, devices, width), Workspace(tmp_path / "w")
        made = pipeline.run(asked, results, Console(quiet=True), Choice(until))
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


class Choosing(Stages):
    """`Stages` for a recipe with candidates: what is in `broken` fails, `chosen` goes on.

    Each student takes a minute; those in `there` take none, and are all that is found when nothing is to be made.
    """

    def __init__(
        self, built: Build, broken: tuple[str, ...] = (), chosen: str = "epochs=2", there: tuple[str, ...] = ()
    ) -> None:
        super().__init__(built, "")
        self.left_out: list[str] = []
        self.compared: list[str] = []
        self.untried: list[str] = []
        self.seconds = 0.0
        self._unfit, self._chosen, self._there, self._at, self._only_found = broken, chosen, there, "", False

    def of(self, candidate: Candidate, *, only_found: bool = False) -> Choosing:
        self._at, self._only_found = candidate.name, only_found
        self.called.append(candidate.name)
        return self

    def student(self, rows: Any, taught_by: Any) -> Any:
        if self._at in self._unfit:
            raise StageFailedError(f"student: nothing learns with {self._at}", fix="give it up")
        if self._at not in self._there:
            if self._only_found:
                raise ToRun
            self.seconds += 60
        return SimpleNamespace(artifact=replace(self._built.student, steps=int(self._at[-1])), digest=self._at)

    def export(self, rows: Any, learner: Any, scales: Any) -> Any:
        self.called.append("export")
        if f"export {self._at}" in self._unfit:
            raise StageFailedError("export: the graph is not understood", fix="give it up")
        return SimpleNamespace(artifact=self._built.export, digest="export")

    def select(self, rows: Any, chains: dict[str, Any], left_out: list[str], untried: list[str]) -> Any:
        self.called.append(f"select from {len(chains)}")
        self.compared = [chain.model.digest for chain in chains.values()]
        self.left_out, self.untried = left_out, untried
        return SimpleNamespace(artifact=SelectArtifact(Path(), (), self._chosen, "", 0.5), digest="select")


@pytest.fixture
def three(built: Build) -> Build:
    """A build whose recipe has three candidates."""
    recipes = [
        built.recipe.model_copy(update={"student": built.recipe.student.model_copy(update={"epochs": float(epochs)})})
        for epochs in (1, 2, 3)
    ]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}})
    return replace(built, recipe=built.recipe.model_copy(update={"search": section}).with_candidates(candidates))


def test_after_the_choice_the_build_is_that_of_the_chosen_one(three: Build) -> None:
    stages: Any = Choosing(three)
    made = walk(three.recipe, stages, Choice())
    several = [name for epochs in (1, 2, 3) for name in (f"epochs={epochs}", "quantize", "export")]
    after = ["select from 3", "epochs=2", "bundle linux-x86_64-cpu", "gate"]
    assert stages.called == ["data", "teacher", *several, *after]
    assert made.recipe.student.epochs == 2
    assert made.recipe.candidates == ()
    assert made.student.steps == 2
    assert made.selection is not None


def test_a_candidate_that_fails_ends_the_build(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=2",))
    with pytest.raises(StageFailedError, match="nothing learns with epochs=2") as caught:
        walk(three.recipe, stages, Choice())
    assert caught.value.what.endswith("(candidate epochs=2)")
    assert stages.called[-1] == "epochs=2"


def test_the_others_are_compared_when_it_is_told_to_keep_going(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=2",), chosen="epochs=3")
    heard: list[Failure] = []
    made = walk(three.recipe, stages, Choice(keep_going=True), Hooks(leave_out=heard.append))
    assert made.student.steps == 3
    assert stages.left_out == ["epochs=2"]
    assert [failure.name for failure in heard] == ["epochs=2"]


def test_a_candidate_may_fail_anywhere_on_its_way(three: Build) -> None:
    stages: Any = Choosing(three, broken=("export epochs=1",))
    walk(three.recipe, stages, Choice(keep_going=True))
    assert stages.left_out == ["epochs=1"]
    assert "select from 2" in stages.called


@pytest.mark.parametrize(
    ("minutes", "there", "broken", "untried"),
    [
        (0.5, (), (), ["epochs=2", "epochs=3"]),
        (1, (), (), ["epochs=2", "epochs=3"]),
        (1.5, (), (), ["epochs=3"]),
        (0.5, ("epochs=1",), (), ["epochs=3"]),
        (0.5, ("epochs=3",), (), ["epochs=2"]),
        (0.5, ("epochs=1", "epochs=2", "epochs=3"), (), []),
        (0.5, (), ("export epochs=1",), ["epochs=3"]),
        (5, (), (), []),
    ],
)
def test_no_further_candidate_is_begun_when_the_minutes_have_passed(
    three: Build, minutes: float, there: tuple[str, ...], broken: tuple[str, ...], untried: list[str]
) -> None:
    """One is built in any case, and those that are there cost nothing."""
    chosen = next(f"epochs={n}" for n in (1, 2) if f"export epochs={n}" not in broken)
    stages: Any = Choosing(three, broken, chosen, there)
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}, "minutes": minutes})
    recipe = three.recipe.model_copy(update={"search": section}).with_candidates(three.recipe.candidates)
    heard: list[str] = []
    hooks = Hooks(put_off=heard.append, spent=lambda: 1000 + stages.seconds)
    made = walk(recipe, stages, Choice(keep_going=True), hooks)
    assert stages.untried == heard == untried
    assert stages.left_out == [name.removeprefix("export ") for name in broken]
    assert made.selection is not None


def test_without_any_candidate_there_is_nothing_to_keep_going_with(three: Build) -> None:
    stages: Any = Choosing(three, broken=("epochs=1", "epochs=2", "epochs=3"))
    with pytest.raises(StageFailedError, match="nothing learns with epochs=1"):
        walk(three.recipe, stages, Choice(keep_going=True))
    assert "select" not in " ".join(stages.called)


def of_vocabularies(built: Build, *vocabularies: str) -> Build:
    """A build whose recipe has a candidate for each; they are named epochs=1, epochs=2 ..."""
    student = built.recipe.student
    recipes = [
        built.recipe.model_copy(update={"student": student.model_copy(update={"vocabulary": vocabulary})})
        for vocabulary in vocabularies
    ]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    section = Search.model_validate({"over": {"student.vocabulary": list(vocabularies)}})
    return replace(built, recipe=built.recipe.model_copy(update={"search": section}).with_candidates(candidates))


class Pruning(Choosing):
    """`Choosing` where students can be pruned, but for those in `whole`; tells what comes after what it works on."""

    def __init__(self, built: Build, whole: tuple[str, ...] = (), chosen: str = "epochs=2") -> None:
        super().__init__(built, (), chosen)
        self._whole = whole

    def narrow(self, rows: Any, taught_by: Any, learner: Any) -> Any:
        self.called.append(f"narrow {learner.digest} as {taught_by.digest} says")
        return SimpleNamespace(artifact=narrowed_of(self._built), digest=f"narrowed {self._at}")

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
    made = walk(alone.recipe, stages, Choice())
    assert stages.called[2:4] == ["prune epochs=1", "quantize pruned epochs=1"]
    assert made.student.steps == 1
    assert made.pruned == pruned_of(alone)
    assert [row.stage for row in made.ledger][:4] == ["teacher", "student", "pruned", "static graph"]
    note = "vocabulary 18,000 -> 3,491 tokens; dev 90.0 -> 90.0 %; [UNK] 1.38 -> 2.37 % of dev tokens"
    assert (made.ledger[2].note, made.ledger[2].model_mib) == (note, 22.888)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_ledger_is_in_the_metric_of_the_gates(built: Build, metric: str) -> None:
    """In every row that a stage makes, and in the bundle; the receipt of the target is in it by itself."""
    gates = built.recipe.gates
    assert gates.accuracy is not None
    asked = gates.model_copy(update={"accuracy": gates.accuracy.model_copy(update={"metric": metric})})
    alone = replace(built, recipe=built.recipe.model_copy(update={"gates": asked}))
    packed: list[tuple[LedgerRow, ...]] = []

    class Packing(Stages):
        def __getattr__(self, stage: str) -> Any:
            make = super().__getattr__(stage)
            if stage != "bundle":
                return make

            def bundle(*inputs: Any) -> Any:
                packed.append(inputs[3])
                return make(*inputs)

            return bundle

    stages: Any = Packing(alone, broken="none")
    made = walk(alone.recipe, stages, Choice())
    points = 2 if metric == "macro_f1" else 0  # below accuracy
    told = [(row.score.metric, round(100 * row.score.value, 2)) for row in made.ledger[:5]]
    assert told == [(metric, value - points) for value in (91.2, 89.7, 89.7, 89.7, 89.55)]
    assert [row.score for row in packed[0]] == [row.score for row in made.ledger[:5]]
    part = Part(alone.recipe, (Made("student", alone.student), Made("export", alone.export)))
    assert [row.score for row in part.ledger] == [row.score for row in made.ledger[1:5]]


def test_what_is_narrowed_goes_on(built: Build) -> None:
    for vocabulary, after in {"keep": "narrowed epochs=1", "prune": "pruned epochs=1"}.items():
        student = built.recipe.student.model_copy(update={"width": 0.75, "vocabulary": vocabulary})
        alone = replace(built, recipe=built.recipe.model_copy(update={"student": student}))
        stages: Any = Pruning(alone)
        stages._at = "epochs=1"
        made = walk(alone.recipe, stages, Choice())
        asked = [one for one in stages.called if one.startswith(("narrow", "prune", "quantize"))]
        assert asked == [
            "narrow epochs=1 as teacher says",
            *(["prune narrowed epochs=1"] if vocabulary == "prune" else []),
            f"quantize {after}",
        ]
        assert stages_of(alone.recipe)[2:-4] == ["student", "narrow", *(["prune"] if vocabulary == "prune" else [])]
        assert made.narrowed == narrowed_of(alone)
        rows = [row.stage for row in made.ledger]
        assert rows[:3] == ["teacher", "student", "narrowed"]
        assert ("pruned" in rows) == (vocabulary == "prune")
    assert made.ledger[2].note == (
        "9.4 M weights, 1161 steps; 12 -> 9 heads, 1,248 -> 936 neurons a layer; dev 90.0 -> 90.0 %"
    )
    assert (made.ledger[2].model_mib, made.ledger[2].seconds) == (35.858, 28.8)


def test_candidates_are_compared_as_they_are_pruned(built: Build) -> None:
    stages: Any = Pruning(of_vocabularies(built, "keep", "prune", "prune"))
    made = walk(stages._built.recipe, stages, Choice())
    assert stages.compared == ["epochs=1", "pruned epochs=2", "pruned epochs=3"]
    assert "quantize pruned epochs=2" in stages.called
    assert made.pruned is not None
    stages = Pruning(stages._built, chosen="epochs=1")
    made = walk(stages._built.recipe, stages, Choice())
    assert "quantize epochs=1" in stages.called
    assert made.pruned is None
    several = ["student", "quantize", "export", "prune", "quantize", "export", "select"]  # two of the three are alike
    assert stages_of(of_vocabularies(built, "keep", "prune").recipe)[2:9] == several


def test_a_candidate_that_cannot_be_pruned_is_left_out(built: Build) -> None:
    several = of_vocabularies(built, "keep", "prune", "prune")
    stages: Any = Pruning(several, whole=("epochs=2",), chosen="epochs=3")
    with pytest.raises(StageFailedError) as caught:
        walk(several.recipe, stages, Choice())
    assert caught.value.what == "prune: there is nothing to prune (candidate epochs=2)"
    stages = Pruning(several, whole=("epochs=2",), chosen="epochs=3")
    walk(several.recipe, stages, Choice(keep_going=True))
    assert stages.compared == ["epochs=1", "pruned epochs=3"]
    assert stages.left_out == ["epochs=2"]
    stages = Pruning(of_vocabularies(built, "prune"), whole=("epochs=1",))
    with pytest.raises(StageFailedError, match="nothing to prune"):
        walk(stages._built.recipe, stages, Choice(keep_going=True))


def test_a_recipe_with_candidates_has_a_student_for_each_and_a_choice(three: Build) -> None:
    chain = ["student", "quantize", "export"]
    assert stages_of(three.recipe) == ["data", "teacher", *chain * 3, "select", "bundle", "gate"]
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

    for module, stand_in in {"student": student, "quantize": quantize, "export": export}.items():
        monkeypatch.setattr(f"edgepack.stages.{module}.run", stand_in)
    monkeypatch.setattr("edgepack.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.targets.measure.answers", lambda predictor, *rest: predictor)
    monkeypatch.setattr("edgepack.targets.measure.latency", latency)
    monkeypatch.setattr("edgepack.scores.score", score)

    def run(*settings: str, until: str = "select", console: Console | None = None, **choice: Any) -> Any:
        made.clear()
        found = load_recipe(tmp_path / "r.yaml", TARGETS, settings)
        quiet = console or Console(quiet=True)
        part = pipeline.run(found, Workspace(tmp_path / "w"), quiet, Choice(until, **choice))
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

    monkeypatch.setattr("edgepack.stages.prune.run", make)
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

    monkeypatch.setattr("edgepack.stages.narrow.run", make)
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


def test_a_wheel_by_path_is_looked_into_before_the_first_training_and_once(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(target: str, supply: Supply, progress: Any) -> None:
        looked.append(target)
        if len(looked) == 1:
            raise StageFailedError("it holds no code for this GPU")

    monkeypatch.setattr("edgepack.targets.carried.require_fitting", look)
    monkeypatch.setattr(pipeline, "Supply", lambda: Supply(given={"linux-x86_64-cpu": (tmp_path / "a.whl",)}))
    with pytest.raises(StageFailedError, match="no code"):
        train({"teacher": "cpu", "student": "cpu"})
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]
    assert looked == ["linux-x86_64-cpu"] * 2
    assert train({"teacher": "cpu", "student": "cpu"}) == []
    assert len(looked) == 2
