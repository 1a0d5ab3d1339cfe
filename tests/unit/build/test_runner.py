"""Builds whose stages are stand-ins: which of them run, on what, and what a build makes of their results."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.build.conftest import STAGES, Train
from tests.unit.conftest import trimmed_of, width_pruned_of

from edgepack.artifacts import Artifact, LedgerRow, ModelArtifact, SelectArtifact
from edgepack.build import plan, preflight, recipe_stages, runner
from edgepack.build.options import BuildOptions
from edgepack.build.workspace import Workspace
from edgepack.console.console import Console
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.recipe.model import Candidate, Recipe, Search
from edgepack.report import document, mlflow_run
from edgepack.results import Build, StageArtifact
from edgepack.stages.bundle import BundleStage
from edgepack.stages.chain import Chain
from edgepack.stages.data import DataStage
from edgepack.stages.export import ExportStage
from edgepack.stages.gate import GateStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.select import SelectStage
from edgepack.stages.stage import Context, Key, MadeOf, Stage
from edgepack.stages.train import StudentStage, TeacherStage
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.stages.width_pruning import WidthPruningStage
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles
from edgepack.training.devices import Card
from edgepack.util import versions

Call = tuple[str, str, Any]  # what it is called by in `called`, the name of the model it makes, its artifact


class Stages:
    """Stand-ins of the stages: each notes its call in `called` and returns what `built` has.

    A model holds its name, which is what it was made of: `2` is a student of two epochs. A call whose name is in
    `broken` fails. `chosen` wins the search.
    """

    def __init__(self, built: Build, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called: list[str] = []
        self.broken: tuple[str, ...] = ()
        self.chosen = "epochs=2"
        self.left_out: list[str] = []
        self.packed: list[tuple[LedgerRow, ...]] = []
        self._built, self._folder = built, folder
        for stage in STAGES.values():
            monkeypatch.setattr(stage, "run", self._stand_in())
        for check in ("check_inputs", "check_training"):
            monkeypatch.setattr(preflight, check, lambda *inputs, **how: None)
        monkeypatch.setattr("edgepack.stages.bundle.packages_and_templates", lambda *inputs: [])
        monkeypatch.setattr("edgepack.targets.this_machine.lacking", lambda *inputs, **options: None)
        for split in ("train", "dev", "test"):
            (folder / f"{split}.tsv").write_text("text\tlabel\n", encoding="utf-8")
        (folder / "ernie-base").mkdir()

    def build(self, recipe: Recipe, options: BuildOptions = BuildOptions()) -> Any:  # noqa: B008 (frozen)
        self.called.clear()
        profile = load_profiles()["local"]
        context = BuildContext(profiles=dict.fromkeys(recipe.targets, profile))
        return runner.build(recipe, Workspace(self._folder / "w"), Console(), options, context)

    def _stand_in(self) -> Callable[[Any, Context, Path], Artifact]:
        def run(stage: Any, ctx: Context, out: Path) -> Artifact:
            call, model, artifact = getattr(self, f"_{stage.name}")(stage, ctx)
            self.called.append(call)
            if call in self.broken:
                raise StageFailedError(f"{call} cannot be made", fix="give it up")
            for file in ("train.jsonl", "dev.jsonl", "test.jsonl") if stage.name == "data" else ("name",):
                (out / file).write_text(model, encoding="utf-8")
            made: Artifact = replace(artifact, folder=out)
            return made

        return run

    def _name(self, ctx: Context, stage: Stage[Any]) -> str:
        """The name of the model that `stage` made."""
        return (ctx.artifact(stage).folder / "name").read_text()

    def _data(self, stage: DataStage, ctx: Context) -> Call:
        return "data", "", self._built.data

    def _teacher(self, stage: TeacherStage, ctx: Context) -> Call:
        return "teacher", "teacher", self._built.teacher

    def _student(self, stage: StudentStage, ctx: Context) -> Call:
        epochs = stage.section.epochs
        assert self._built.student is not None
        return f"student {epochs:g}", f"{epochs:g}", replace(self._built.student, steps=int(epochs or 0))

    def _width_pruning(self, stage: WidthPruningStage, ctx: Context) -> Call:
        student, teacher = self._name(ctx, stage.student), self._name(ctx, stage.teacher or stage.student)
        return (
            f"prune the width of {student} as {teacher} says",
            f"width-pruned {student}",
            width_pruned_of(self._built),
        )

    def _vocabulary_trimming(self, stage: VocabularyTrimmingStage, ctx: Context) -> Call:
        name = f"{stage.section.min_count} of {self._name(ctx, stage.student)}"
        return f"trim {name}", f"trimmed {name}", trimmed_of(self._built)

    def _quantize(self, stage: QuantizeStage, ctx: Context) -> Call:
        return f"quantize {self._name(ctx, stage.student)}", "", self._built.scales

    def _export(self, stage: ExportStage, ctx: Context) -> Call:
        return f"export {self._name(ctx, stage.student)}", "", self._built.export

    def _select(self, stage: SelectStage, ctx: Context) -> Call:
        built = {name: chain for name, chain in stage.chains.items() if ctx.has(chain.export)}
        self.left_out = [name for name in stage.chains if name not in built]
        names = [self._name(ctx, chain.model) for chain in built.values()]
        return f"select from {', '.join(names)}", "", SelectArtifact(Path(), (), self.chosen, "", 0.5)

    def _bundle(self, stage: BundleStage, ctx: Context) -> Call:
        self.packed.append(tuple(row.timeless() for row in stage.shipment.build(ctx).ledger))
        return f"bundle {stage.target}", "", replace(self._built.target_results[0].bundle, target=stage.target)

    def _gate(self, stage: GateStage, ctx: Context) -> Call:
        gate: Any = self._built.target_results[0].gate
        return f"gate {stage.target}", "", replace(gate, target=stage.target)


@pytest.fixture
def stages(built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(built, tmp_path, monkeypatch)


UP_TO_EXPORT = ["data", "teacher", "student 3", "quantize 3", "export 3"]


@pytest.fixture
def three_targets(built: Build) -> Recipe:
    return built.recipe.model_copy(update={"targets": ("one", "two", "three")})


def test_a_target_that_fails_ends_the_build_unless_it_keeps_going(stages: Stages, three_targets: Recipe) -> None:
    stages.broken = ("bundle two",)
    with pytest.raises(StageFailedError, match="bundle two cannot be made"):
        stages.build(three_targets)
    assert stages.called == [*UP_TO_EXPORT, "bundle one", "gate one", "bundle two"]
    made = stages.build(three_targets, BuildOptions(until="bundle", keep_going=True))
    assert stages.called == ["bundle two", "bundle three"]
    assert [one.stage for one in made.stage_artifacts][-2:] == ["bundle", "bundle"]
    assert [failure.name for failure in made.failed_targets] == ["two"]
    for stages.broken in (("bundle two",), ("gate two",)):
        made = stages.build(three_targets, BuildOptions(keep_going=True))
        assert [item.bundle.target for item in made.target_results] == ["one", "three"]
        assert [(failure.name, failure.error.fix) for failure in made.failed_targets] == [("two", "give it up")]


def test_only_a_gate_that_passes_is_kept(stages: Stages, built: Build) -> None:
    """What failed or could not be decided is measured again; all else is taken from the workspace."""
    stages.build(built.recipe)
    assert stages.called == [*UP_TO_EXPORT, "bundle local", "gate local"]
    stages.build(built.recipe)
    assert stages.called == ["gate local"]


def test_rows_are_checked_by_every_build_and_warned_of_by_the_one_that_reads_them(
    stages: Stages, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: list[bool] = []
    monkeypatch.setattr(preflight, "check_inputs", lambda *inputs, **how: cached.append(how["cached"]))
    for again in ("", "", "data"):
        stages.build(built.recipe, BuildOptions(start=again or None))
    assert cached == [False, True, False]


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
        workspace, key = Workspace(tmp_path / "w"), Key("student", folder.name, MadeOf(1, None, (), {}))
        workspace.build(key, lambda out: replace(built.scales, folder=out))
    assert "damaged" not in capsys.readouterr().err
    stages.build(built.recipe, BuildOptions("export"))
    assert stages.called[0] == "student 3"
    assert "] student (the result is damaged)\n" in capsys.readouterr().err


def test_an_upgrade_of_edgepack_or_python_trains_nothing_again(
    stages: Stages, built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_run() -> list[str]:
        planned = plan.make(built.recipe, Workspace(tmp_path / "w"))
        return [stage.stage for stage in planned.stages if stage.state == "to run"]

    def upgrade(**installed: str) -> None:
        found = importlib.metadata.version
        monkeypatch.setattr(importlib.metadata, "version", lambda name: installed.get(name) or found(name))

    monkeypatch.setattr("edgepack.packages.wheels.wanted", lambda *inputs, **options: ([], {}))
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
    every = [stage.stage for stage in plan.make(built.recipe, Workspace(tmp_path / "w")).stages]
    assert to_run() == every[every.index("teacher") :]


def test_a_gpu_that_cannot_be_used_shows_before_the_first_training(train: Train, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        train({"teacher": "cpu", "student": "gpu"})
    assert caught.value.what == "student.device: gpu is requested, but cannot be used"
    assert "no driver" in caught.value.why
    assert list((tmp_path / "w" / "data").glob("*/seal.json"))
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]


def test_a_gpu_is_required_by_what_is_still_to_be_trained(train: Train) -> None:
    devices = {"teacher": "gpu", "student": "gpu:0"}
    assert train(devices, Card(0, "NVIDIA H200", "9.0", 143771)) == ["teacher on gpu", "student on gpu:0"]
    assert train(devices) == []
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu"):
        train(devices, until="width_pruning", width=0.5)


def test_a_gpu_is_not_asked_of_what_comes_after_the_end(train: Train) -> None:
    assert train({"teacher": "cpu", "student": "gpu"}, until="teacher") == ["teacher on cpu"]
    with pytest.raises(EnvironmentUnfitError, match=r"teacher\.device: gpu"):
        train({"teacher": "gpu", "student": "gpu"}, until="teacher")
    assert train({"teacher": "gpu", "student": "gpu"}, until="data") == []


@pytest.fixture
def three(built: Build) -> Recipe:
    """A recipe with three candidates."""
    return of_candidates(built, "epochs", 1, 2, 3)


KEEP_GOING = BuildOptions(keep_going=True)


def test_a_build_goes_on_with_the_chosen_candidate(stages: Stages, three: Recipe) -> None:
    made = stages.build(three)
    several = [f"{stage} {epochs}" for epochs in (1, 2, 3) for stage in ("student", "quantize", "export")]
    after = ["select from 1, 2, 3", "bundle local", "gate local"]
    assert stages.called == ["data", "teacher", *several, *after]
    assert made.recipe.student.epochs == 2
    assert made.recipe.candidates == ()
    assert made.student.steps == 2
    assert made.selection is not None


def test_without_any_candidate_there_is_nothing_to_keep_going_with(stages: Stages, three: Recipe) -> None:
    stages.broken = ("student 1", "student 2", "student 3")
    with pytest.raises(StageFailedError, match="student 1 cannot be made"):
        stages.build(three, KEEP_GOING)
    assert stages.called[-1] == "student 3"


def of_candidates(built: Build, key: str, *values: Any) -> Recipe:
    """A recipe with a candidate for each value of the student's `key`; they are named epochs=1, epochs=2 ..."""
    recipes = [with_student(built, **{key: value}) for value in values]
    candidates = tuple(Candidate(f"epochs={number}", recipe) for number, recipe in enumerate(recipes, 1))
    section = Search.model_validate({"over": {f"student.{key}": list(values)}})
    return built.recipe.model_copy(update={"search": section}).with_candidates(candidates)


def with_student(built: Build, **values: Any) -> Recipe:
    student = type(built.recipe.student).model_validate(built.recipe.student.model_dump(by_alias=True) | values)
    return built.recipe.model_copy(update={"student": student})


def test_a_build_goes_on_with_the_trimmed_student(stages: Stages, built: Build) -> None:
    made = stages.build(with_student(built, vocabulary="trim"))
    assert stages.called[2:5] == ["student 3", "trim 1 of 3", "quantize trimmed 1 of 3"]
    assert made.student.steps == 3
    assert made.vocabulary_trimming is not None
    assert [row.stage for row in made.ledger][:4] == ["teacher", "student", "trimmed", "static graph"]
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
    part = Build.until(recipe, (StageArtifact("student", built.student), StageArtifact("export", built.export)))
    assert [row.score for row in part.ledger] == [row.score for row in made.ledger[1:5]]


def test_a_build_goes_on_with_the_width_pruned_student(stages: Stages, built: Build) -> None:
    stages.build(with_student(built, width=0.75))
    assert stages.called[3:5] == ["prune the width of 3 as teacher says", "quantize width-pruned 3"]
    made = stages.build(with_student(built, width=0.75, vocabulary="trim"))
    assert stages.called[:2] == ["trim 1 of width-pruned 3", "quantize trimmed 1 of width-pruned 3"]
    assert made.width_pruning is not None
    assert [row.stage for row in made.ledger][:4] == ["teacher", "student", "width-pruned", "trimmed"]
    calibrated = "calibration error 4.1 -> 1.2 points, Brier 0.152 -> 0.147"
    assert made.ledger[2].note == (
        f"9.4 M weights, 1161 steps; {calibrated}; 12 -> 9 heads, 1,248 -> 936 neurons a layer; dev 90.0 -> 90.0 %"
    )
    assert (made.ledger[2].model_mib, made.ledger[2].seconds) == (35.858, 28.8)


@dataclass(frozen=True)
class Halved(ModelArtifact):
    """What a stage makes that only a test has."""

    row = "half"


@dataclass(frozen=True)
class HalvingStage(Stage[ModelArtifact]):
    student: Stage[ModelArtifact]

    name = "halving"
    version = 1

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.student,)

    def decides(self, ctx: Context) -> Any:
        return None

    def run(self, ctx: Context, out: Path) -> ModelArtifact:
        student = ctx.artifact(self.student)
        values = {field.name: getattr(student, field.name) for field in fields(ModelArtifact)}
        (out / "name").write_text("half", encoding="utf-8")
        (out / "metrics.json").write_text('{"train/loss": [[10, 0.5]]}', encoding="utf-8")
        made: ModelArtifact = self.kind(**values | {"folder": out, "steps": 7})
        return made


@pytest.mark.parametrize(("kind", "row"), [(Halved, "half"), (ModelArtifact, "halving")])
def test_a_further_stage_that_makes_a_model_is_in_ledger_report_and_mlflow(
    stages: Stages, built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, row: str
) -> None:
    """Nothing but its place in the chain is told of it."""

    def longer(*given: Any) -> Chain:
        found = chain(*given)
        further = HalvingStage(found.model)
        scales = replace(found.quantize, student=further)
        export = replace(found.export, student=further, scales=scales)
        return Chain(found.recipe, (*found.models, further), scales, export)

    chain = recipe_stages._chain
    monkeypatch.setattr(recipe_stages, "_chain", longer)
    monkeypatch.setattr(HalvingStage, "kind", kind, raising=False)
    made = stages.build(built.recipe)
    assert stages.called[2:4] == ["student 3", "quantize half"]
    assert [one.stage for one in made.ledger][:4] == ["teacher", "student", row, "static graph"]
    assert [one.stage for one in stages.packed[0]][:4] == ["teacher", "student", row, "static graph"]
    report = document.make(made)
    assert [(model.role, model.steps) for model in report.models][-1] == (row, 7)
    for model in (made.teacher, made.student):
        (model.folder / "metrics.json").write_text("{}", encoding="utf-8")
    assert (f"{row}/train/loss", 10, 0.5) in list(mlflow_run._metrics(made, report))


def test_a_candidate_that_fails_ends_the_build_unless_it_keeps_going(stages: Stages, built: Build) -> None:
    several = of_candidates(built, "vocabulary", "keep", "trim", {"trim": {"min_count": 2}})
    stages.broken, stages.chosen = ("trim 1 of 3",), "epochs=3"
    with pytest.raises(StageFailedError) as caught:
        stages.build(several)
    assert caught.value.what == "trim 1 of 3 cannot be made (candidate epochs=2)"
    made = stages.build(several, KEEP_GOING)
    assert "select from 3, trimmed 2 of 3" in stages.called
    assert stages.left_out == [failure.name for failure in made.failed_candidates] == ["epochs=2"]
    assert made.vocabulary_trimming is not None
    stages.chosen = "epochs=1"
    assert stages.build(several, BuildOptions(start="select", keep_going=True)).vocabulary_trimming is None


def test_a_wheel_by_path_is_inspected_once_and_before_the_first_training(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(target: str, context: BuildContext, progress: Any) -> None:
        looked.append(target)
        if len(looked) == 1:
            raise StageFailedError("it holds no code for this GPU")

    monkeypatch.setattr("edgepack.packages.site_packages.require_fitting", look)
    monkeypatch.setattr(runner, "BuildContext", lambda: BuildContext(given={"local": (tmp_path / "a.whl",)}))
    with pytest.raises(StageFailedError, match="no code"):
        train({"teacher": "cpu", "student": "cpu"})
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]
    assert looked == ["local"] * 2
    assert train({"teacher": "cpu", "student": "cpu"}) == []
    assert len(looked) == 2
