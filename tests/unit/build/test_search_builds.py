"""Builds of recipes that search: which stages of which candidates run, and what a plan and progress show of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stage_lists import known
from tests.unit.build.conftest import STAGES, Train
from tests.unit.conftest import trimmed_of, width_pruned_of

from edgepack.artifacts import ExportArtifact, ModelArtifact, ScalesArtifact, Score, TrimmedArtifact
from edgepack.build import plan, runner
from edgepack.build.options import BuildOptions
from edgepack.build.workspace import Workspace
from edgepack.console.console import Console
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError, UsageError
from edgepack.evaluation import Latency
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Recipe
from edgepack.results import Build
from edgepack.stages.stage import Context
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.stages.width_pruning import WidthPruningStage
from edgepack.training import devices as gpus

TARGETS = {"local"}


SEARCHED = """\
edgepack: 1
name: tiny
version: 0.1.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
student: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}, device: cpu}
linear: off
search: {over: {student.epochs: [1, 2]}}
"""


@pytest.fixture
def with_teacher(tmp_path: Path) -> Callable[[str], Recipe]:
    """SEARCHED with a teacher and other values to search over."""

    def load(over: str, *settings: str) -> Recipe:
        text = SEARCHED.replace("student:", "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\nstudent:")
        (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
        return load_recipe(tmp_path / "r.yaml", TARGETS, [f"search={{over: {over}}}", *settings])

    return load


@pytest.fixture
def search(train: Train, tmp_path: Path, built: Build, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Builds of SEARCHED until a stage, whose students are as good as their epochs; says what was made of candidates.

    A file has as many milliseconds as its student has epochs, times ten when it is not quantized.
    """
    made: list[str] = []
    (tmp_path / "r.yaml").write_text(SEARCHED, encoding="utf-8")

    def student(stage: Any, ctx: Context, out: Path) -> ModelArtifact:
        epochs = stage.section.epochs
        if epochs > 8:
            raise StageFailedError("student: it takes too long", fix="fewer epochs")
        made.append(f"student {epochs:g}")
        (out / "weights").write_text(f"{epochs}", encoding="utf-8")
        return replace(built.student, folder=out, parameters=int(epochs))

    def quantize(stage: Any, ctx: Context, out: Path) -> ScalesArtifact:
        method = stage.section.method
        made.append(f"quantize {ctx.artifact(stage.student).parameters} {method}")
        return ScalesArtifact(out, (), len(method))

    def export(stage: Any, ctx: Context, out: Path) -> ExportArtifact:
        student, scales = ctx.artifact(stage.student), ctx.artifact(stage.scales)
        made.append(f"export {student.parameters} {stage.section.method}")
        (out / "onnx-int8").mkdir()
        (out / "onnx-int8" / "epochs").write_text(str(student.parameters), encoding="utf-8")
        (out / "onnx-int8" / "ms").write_text(str(student.parameters * (1 if scales.calibration_rows == 3 else 10)))
        return replace(built.export, folder=out)

    def latency(folders: list[Path], *rest: Any, stage: str) -> list[Latency]:
        return [Latency(0, float((folder / "ms").read_text(encoding="utf-8")), 0) for folder in folders]

    def score(task: Any, metric: str, rows: Any, answers: Path, classes: Any) -> Score:
        return Score(int((answers / "epochs").read_text(encoding="utf-8")) / 10, 0, 1, 2, 0.95)

    for stage, stand_in in {"student": student, "quantize": quantize, "export": export}.items():
        monkeypatch.setattr(STAGES[stage], "run", stand_in)
    monkeypatch.setattr("edgepack.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.evaluation.answers", lambda predictor, *rest: predictor)
    monkeypatch.setattr("edgepack.evaluation.latency", latency)
    monkeypatch.setattr("edgepack.evaluation.score", score)

    def run(*settings: str, until: str = "select", console: Console | None = None, **choice: Any) -> Any:
        made.clear()
        found = load_recipe(tmp_path / "r.yaml", TARGETS, settings)
        quiet = console or Console(quiet=True)
        part = runner.build(found, Workspace(tmp_path / "w"), quiet, BuildOptions(until, **choice))
        assert part.ended_early
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
    for name in ("data", "student epochs=1", "quantize epochs=1, method=ptq", "quantize epochs=1, method=none",
                 "student epochs=2", "export epochs=2, method=none", "select"):  # fmt: skip
        assert f"] {name}\n" in told, name
    assert [row.stage for row in made.ledger][:2] == ["student", "static graph"]
    assert [stage.stage for stage in planned.stages if stage.state != "cached"] == ["bundle", "gate"]
    assert search(BOTH)[1] == []
    assert search(BOTH, start="student")[1] == did  # once, also when all is made again
    assert search(BOTH, start="export")[1] == [one for one in did if one.startswith("export")]


def test_a_build_may_end_in_the_midst_of_all_candidates(search: Callable[..., Any]) -> None:
    assert search(BOTH, until="student")[1] == ["student 1", "student 2"]
    quantized = [f"quantize {epochs} {method}" for epochs in (1, 2) for method in ("ptq", "none")]
    made, did, planned = search(BOTH, until="quantize")
    assert did == quantized
    assert made.selection is None
    states = {(stage.stage, stage.candidate): stage.state for stage in planned.stages}
    assert {states["quantize", f"epochs=1, method={method}"] for method in ("ptq", "none")} == {"cached"}
    assert states["export", "epochs=1, method=ptq"] == "to run"
    assert search(BOTH, until="export")[1] == [one.replace("quantize", "export") for one in quantized]


def test_a_stage_that_all_candidates_share_names_no_candidate(search: Callable[..., Any]) -> None:
    made, _, planned = search("search={over: {quantize.method: [ptq, none]}}", "student.epochs=3", until="student")
    assert [(one.stage, one.candidates) for one in made.stage_artifacts] == [("data", ()), ("student", ())]
    assert [row.stage for row in made.ledger] == ["student"]
    candidates = {stage.stage: stage.candidate for stage in reversed(planned.stages)}
    assert (candidates["student"], candidates["quantize"]) == (None, "method=ptq")


def test_candidates_that_share_a_training_are_trained_once(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, built: Build
) -> None:
    """Also when it is made again; one is trimmed, and a plan knows which."""

    def make(stage: Any, ctx: Context, out: Path) -> TrimmedArtifact:
        (out / "weights").write_text("fewer", encoding="utf-8")
        return replace(trimmed_of(built), folder=out, parameters=ctx.artifact(stage.student).parameters - 1)

    monkeypatch.setattr(VocabularyTrimmingStage, "run", make)
    over = "search={over: {student.vocabulary: [keep, {trim: {min_count: 2, characters: all}}]}, tolerance_points: 99}"
    assert search(over, "student.epochs=3", until="student")[1] == ["student 3"]
    part, did, planned = search(over, "student.epochs=3", until="vocabulary_trimming")
    assert did == []
    assert [(one.stage, len(one.candidates)) for one in part.stage_artifacts] == [
        ("data", 0),
        ("student", 0),
        ("vocabulary_trimming", 1),
    ]
    made, did, planned = search(over, "student.epochs=3")
    assert did == ["quantize 3 ptq", "export 3 ptq", "quantize 2 ptq", "export 2 ptq"]
    trimmed = "vocabulary={trim: {min_count: 2, characters: all}}"
    assert made.selection.chosen == trimmed  # its file is faster
    assert [row.stage for row in made.ledger][:2] == ["student", "trimmed"]
    found = [(one.stage, one.candidate, one.state) for one in planned.stages if known([one.stage])]
    assert found == [
        ("data", None, "cached"),
        ("student", None, "cached"),
        *((stage, "vocabulary=keep", "cached") for stage in ("quantize", "export")),
        *((stage, trimmed, "cached") for stage in ("vocabulary_trimming", "quantize", "export")),
        ("select", None, "cached"),
        ("bundle", None, "to run"),
        ("gate", None, "to run"),
    ]
    about = "keeps the tokens that occur at least 2 times in the training texts, and every Chinese character"
    assert [one.about for one in planned.stages if one.stage == "vocabulary_trimming"] == [about]
    assert search(over, "student.epochs=3", start="student")[1][0] == "student 3"
    with pytest.raises(UsageError, match="this recipe has no stage vocabulary_trimming"):
        search("search=null", until="vocabulary_trimming")


def test_candidates_of_several_widths_train_the_whole_student_once(
    search: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, built: Build
) -> None:
    def make(stage: Any, ctx: Context, out: Path) -> Any:
        width, student = stage.section.width, ctx.artifact(stage.student)
        (out / "weights").write_text(f"{width}", encoding="utf-8")
        told = {"folder": out, "parameters": round(student.parameters * width), "train_seconds": 2.0}
        return replace(width_pruned_of(built), **told)

    monkeypatch.setattr(WidthPruningStage, "run", make)
    over = "search={over: {student.width: [1.0, 0.75, 0.5]}, tolerance_points: 99}"
    part, did, planned = search(over, "student.epochs=4", until="width_pruning")
    assert did == ["student 4"]
    assert [(one.stage, one.candidates) for one in part.stage_artifacts[1:]] == [
        ("student", ()), ("width_pruning", ("width=0.75",)), ("width_pruning", ("width=0.5",)),
    ]  # fmt: skip
    about = "cut to 0.75 of its width, at most 0.2 M weights; 1 step of 32 (2 rows x 4 epochs, learning rate 0.0003)"
    narrow = [(one.candidate, one.about) for one in planned.stages if one.stage == "width_pruning"]
    assert narrow[0][1].startswith(about.replace("1 step", "4 steps"))
    assert [candidate for candidate, _ in narrow] == ["width=0.75", "width=0.5"]
    made, did, planned = search(over, "student.epochs=4")
    assert did == [f"{stage} {n} ptq" for n in (4, 3, 2) for stage in ("quantize", "export")]
    assert made.selection.chosen == "width=0.5"  # its file is faster
    seconds = [one.train_seconds for one in made.selection.candidates]
    assert seconds == [35.2, 37.2, 37.2]  # with that of the whole student
    assert [row.stage for row in made.ledger][:2] == ["student", "width-pruned"]
    assert search("search=null", "student.epochs=4", "student.width=0.5", until="export")[1] == []
    assert "student 4" not in search(over, "student.epochs=4", start="width_pruning")[1]
    with pytest.raises(UsageError, match="this recipe has no stage width_pruning"):
        search("search=null", until="width_pruning")


def test_further_texts_are_read_before_a_student_is_trained_for_them(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "field.txt").write_text("挺好\n", encoding="utf-8")  # a dev row
    field = "search={over: {student.vocabulary: [keep, {trim: {texts: field.txt}}]}}"
    with pytest.raises(RecipeInvalidError, match=r"field\.txt cannot be used: 1 error"):
        search(field, "student.epochs=3")
    assert search("search=null", "student.epochs=3", until="student")[1] == ["student 3"]


def test_a_floor_for_a_class_that_the_data_lack_ends_a_build_before_it_trains(search: Callable[..., Any]) -> None:
    with pytest.raises(RecipeInvalidError, match="`recall_of` names '负'") as caught:
        search("search=null", "gates.accuracy={per_class: {recall_of: {负: 0.8}}}", "student.epochs=3", until="student")
    assert caught.value.fix.startswith("the data have")
    search("search=null", "gates.accuracy={per_class: {recall: 0.8}}", "student.epochs=3", until="student")


def test_a_plan_lists_the_stages_of_each_candidate(search: Callable[..., Any]) -> None:
    search("search={over: {student.epochs: [2, 4]}}")
    _, _, planned = search(until="data")
    states = {(stage.stage, stage.candidate): stage.state for stage in planned.stages}
    for stage in ("student", "quantize", "export"):
        assert (states[stage, "epochs=1"], states[stage, "epochs=2"]) == ("to run", "cached")
    assert states["select", None] == "to run"
    values = {value.key: value.value for value in planned.values}
    assert values["search.over.student.epochs"] == [1, 2]
    assert "student.epochs" not in values  # there is no one value of it
    _, _, planned = search()
    assert [stage.stage for stage in planned.stages if stage.state != "cached"] == ["bundle", "gate"]
    about = "at most 0.2 M weights; 1 step of 32 (2 rows x 1 epoch, learning rate 0.01), "
    assert next(stage for stage in planned.stages if stage.stage == "student").about.startswith(about)


def test_a_plan_lists_each_section_of_a_list(search: Callable[..., Any]) -> None:
    budgets = "gates={latency: {by_length: [{max_tokens: 8, p95_ms: 900}, {max_tokens: 16, p50_ms: 800}]}}"
    _, _, planned = search("search=null", budgets, until="data")
    values = {value.key: (value.value, value.given) for value in planned.values}
    assert values["gates.latency.by_length[1].max_tokens"] == (16, True)
    assert values["gates.latency.by_length[1].p95_ms"] == (None, False)


def test_a_partial_build_shows_the_test_score_of_the_chosen_candidate_alone(search: Callable[..., Any]) -> None:
    made, _, _ = search(until="student")
    assert [(one.stage, one.candidates) for one in made.stage_artifacts] == [
        ("data", ()), ("student", ("epochs=1",)), ("student", ("epochs=2",)),
    ]  # fmt: skip
    assert made.ledger == ()
    made, _, _ = search()
    assert [row.stage for row in made.ledger] == ["student", "static graph", "float ONNX", "INT8 ONNX"]


def test_progress_names_and_numbers_the_stages_of_candidates(
    search: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    search("search={over: {student.epochs: [2]}}")
    capsys.readouterr()
    search("search={over: {student.epochs: [1, 9, 2]}}", console=Console(), keep_going=True)
    told = capsys.readouterr().err
    for line in (
        "] student epochs=1 (student.epochs 2 -> 1)\n",
        "warning: this candidate is left out: student: it takes too long (candidate epochs=9)\n",
        "] student epochs=2 (cached)\n",
        "] select (result of export changed",
        "1 candidate failed: epochs=9\n",
    ):
        assert line in told, line


def test_a_failed_candidate_is_tried_again_and_may_be_chosen_then(search: Callable[..., Any]) -> None:
    several = "search={over: {student.epochs: [1, 9]}}"
    made, _, _ = search(several, keep_going=True)
    assert made.selection.left_out == ("epochs=9",)
    assert [failure.name for failure in made.failed_candidates] == ["epochs=9"]
    with pytest.raises(StageFailedError, match="too long"):
        search(several)
    assert search("search={over: {student.epochs: [1]}}")[0].selection.left_out == ()


def test_a_student_that_fails_fails_once_for_all_candidates_that_share_it(search: Callable[..., Any]) -> None:
    several = "search={over: {student.epochs: [9, 1], quantize.method: [ptq, none]}}"
    made, did, _ = search(several, keep_going=True)
    assert did[0] == "student 1"
    assert made.selection.left_out == ("epochs=9, method=ptq", "epochs=9, method=none")
    assert [failure.error.what for failure in made.failed_candidates] == [
        f"student: it takes too long (candidate {name})" for name in made.selection.left_out
    ]


def test_every_candidate_is_checked_before_the_teacher_is_trained(
    train: Train, with_teacher: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[Any] = []
    monkeypatch.setattr("edgepack.stages.train.probe", lambda model: probed.append(model.scratch.layers))
    over = "{student.model.scratch.layers: [2, 3], student.epochs: [1, 2], student.device: [cpu]}"
    runner.build(with_teacher(over), Workspace(tmp_path / "w"), Console(quiet=True), BuildOptions("teacher"))
    assert probed == [2, 3]
    found = with_teacher(over.replace("[cpu]", "[cpu, gpu]"), "teacher.epochs=1")
    monkeypatch.setattr(gpus, "detect", lambda: gpus.PaddleBuild("3.3.1", None, None, (), ()))
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu is requested"):
        runner.build(found, Workspace(tmp_path / "w"), Console(quiet=True), BuildOptions("student"))


def test_a_candidate_that_cannot_be_loaded_is_named_before_the_teacher_is_trained(
    train: Train, with_teacher: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(model: Any) -> None:
        if model.scratch.layers in broken:
            raise StageFailedError("its weights are damaged")

    monkeypatch.setattr("edgepack.stages.train.probe", check)
    found = with_teacher("{student.model.scratch.layers: [2, 3]}")

    def teacher(name: str, *, keep_going: bool) -> Any:
        options = BuildOptions("teacher", keep_going=keep_going)
        return runner.build(found, Workspace(tmp_path / name), Console(quiet=True), options)

    broken = [3]
    with pytest.raises(StageFailedError) as caught:
        teacher("w", keep_going=False)
    assert caught.value.what == "its weights are damaged (candidate layers=3)"
    assert teacher("w", keep_going=True).stage_artifacts[-1].stage == "teacher"
    broken = [2, 3]
    with pytest.raises(StageFailedError) as caught:
        teacher("v", keep_going=True)
    assert caught.value.what == "its weights are damaged (candidate layers=2)"
