"""What decides a stage's result, and what does not."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.model_folders import write_model
from tests.stage_lists import known, ordered

from edgepack.artifacts import ModelArtifact
from edgepack.build.recipe_stages import stages_of
from edgepack.build.workspace import Workspace
from edgepack.recipe.loader import load_recipe
from edgepack.stages.stage import Context, Stage, StageResult

RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
teacher: {model: ./weights/base}
student: {model: ./weights/nano}
linear: off
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A recipe with its data and weights."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text(f"text\tlabel\n{split} a\t1\n{split} b\t0\n", encoding="utf-8")
    for name in ("base", "nano"):
        write_model(folder / "weights" / name, "{}")
        (folder / "weights" / name / "model_state.pdparams").write_text(name, encoding="utf-8")
    return folder


Note = Callable[[Stage[Any], StageResult[Any]], StageResult[Any]]


def keys(folder: Path, *settings: str, note: Note = lambda stage, result: result) -> dict[str, str]:
    """The key of every stage until the choice of a candidate, by stage and candidate.

    The data are made; the other results are named by their keys alone, and go through `note`.
    """
    recipe = load_recipe(folder / "recipe.yaml", {"local"}, settings)
    workspace, ctx, found = Workspace(folder.parent / "results"), Context(), {}
    stages = stages_of(recipe, ctx.targets)
    for stage in stages:
        if stage.target is not None:
            break
        key = stage.key(ctx)
        for name in stages.candidates_of(stage) or ("",):
            found[f"{stage.name} {name}".rstrip()] = key.digest
        named: Any = SimpleNamespace(max_length=64, labels=("0", "1"), train_seconds=1.0)
        result: StageResult[Any] = StageResult(stage.name, named, key.digest, {"model_state.pdparams": key.digest})
        if stage.name == "data":
            result = workspace.build(key, functools.partial(stage.run, ctx))
        ctx = ctx.with_result(stage, note(stage, result))
    if recipe.search is None:
        assert known(found) == ordered(known(found))
    return found


def test_a_linear_model_depends_on_the_rows_and_is_compared_with_what_ships(project: Path) -> None:
    text = (project / "recipe.yaml").read_text(encoding="utf-8").replace("linear: off\n", "")
    (project / "recipe.yaml").write_text(text, encoding="utf-8")
    before = keys(project)
    assert known(before) == ordered({"data", "linear", "teacher", "student", "quantize", "export", "combine"})
    of_student, of_rows = keys(project, "student.epochs=1"), keys(project, "data.train_rows=1")
    assert_changed(before, of_student, ["student", "quantize", "export", "combine"])
    assert changed(before, of_rows) == list(before)


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What has another key, or that only one of the two has: stages, or a stage and its candidate.

    In the order of the build `after`; at the end, what it lacks.
    """
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def assert_changed(before: dict[str, str], after: dict[str, str], stages: list[str]) -> None:
    """`stages` have changed, in this order, and no others. Further stages may have changed too, after the first."""
    found = changed(before, after)
    assert known(found) == stages
    assert found[0] == stages[0]


def begun_at(stage: str, before: dict[str, str]) -> list[str]:
    """The stages from `stage` on."""
    names = list(before)
    return names[names.index(stage) :]


def test_keys_do_not_depend_on_where_files_and_folders_lie(project: Path) -> None:
    before = keys(project)
    project = project.rename(project.with_name("moved"))
    (project / "train.tsv").rename(project / "training.tsv")
    (project / "weights" / "base").rename(project / "weights" / "large")
    assert changed(before, keys(project, "data.train=training.tsv", "teacher.model=./weights/large")) == []


def test_the_same_rows_in_another_file_are_read_again_and_train_nothing(project: Path) -> None:
    before = keys(project)
    rows = (project / "train.tsv").read_text(encoding="utf-8")
    (project / "train.csv").write_text(rows.replace("\t", ","), encoding="utf-8")
    assert changed(before, keys(project, "data.train=train.csv")) == ["data"]


def test_the_time_that_a_training_took_changes_no_later_key(project: Path) -> None:
    clock = itertools.count()

    def clocked(stage: Stage[Any], result: StageResult[Any]) -> StageResult[Any]:
        """As trained again: the files of the model are the same, and `artifact.json` and the series are not."""
        now = str(next(clock))
        timed = {"metrics.json": now, f"events.out.tfevents.{now}.host": now}
        if issubclass(stage.kind, ModelArtifact):
            return replace(result, digest=now, files={**result.files, "artifact.json": now, **timed})
        if stage.name == "quantize":
            return replace(result, digest=now, files={**result.files, **{f"weights/{name}": now for name in timed}})
        return result

    qat = "quantize.method=qat"
    assert changed(keys(project, qat, note=clocked), keys(project, qat, note=clocked)) == []


def test_trained_weights_beside_ranges_decide_the_export(project: Path) -> None:
    def other(stage: Stage[Any], result: StageResult[Any]) -> StageResult[Any]:
        files = {**result.files, "weights/model_state.pdparams": "other"}
        return replace(result, files=files) if stage.name == "quantize" else result

    assert changed(keys(project), keys(project, note=other)) == ["export"]


def test_texts_without_labels_reach_the_student_that_learns_from_them_and_no_teacher(project: Path) -> None:
    (project / "more.txt").write_text("a text\nanother\n", encoding="utf-8")
    more = "data.unlabelled=more.txt"
    without, with_them = keys(project), keys(project, more)
    assert changed(without, with_them) == ["data", *begun_at("student", without)]
    with (project / "more.txt").open("a", encoding="utf-8") as stream:
        stream.write("a third\n")
    assert changed(with_them, keys(project, more)) == ["data", *begun_at("student", with_them)]


def test_other_names_of_labels_train_everything_again(project: Path) -> None:
    """The rows may be the same: a sample that misses a rare label has it in the model nevertheless."""
    with (project / "train.tsv").open("a", encoding="utf-8") as stream:
        stream.write("rare\t2\n")
    before = keys(project, "data.train_rows=2", "data.seed=1")
    text = (project / "train.tsv").read_text(encoding="utf-8")
    (project / "train.tsv").write_text(text.replace("rare\t2", "rare\t3"), encoding="utf-8")
    assert changed(before, keys(project, "data.train_rows=2", "data.seed=1")) == list(before)


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("train.tsv", "data"),
        ("test.tsv", "data"),
        ("weights/base/model_state.pdparams", "teacher"),
        ("weights/nano/vocab.txt", "student"),
    ],
)
def test_what_files_hold_decides(project: Path, file: str, stage: str) -> None:
    before = keys(project)
    with (project / file).open("a", encoding="utf-8") as stream:
        stream.write("more\t1\n")
    assert changed(before, keys(project)) == begun_at(stage, before)


def test_what_no_reader_takes_from_a_models_folder_decides_nothing_and_is_not_read(project: Path) -> None:
    before = keys(project)
    with (project / "weights" / "nano" / "training.log").open("wb") as log:
        log.truncate(2**43)  # 8 TiB, which take no space and hours to read
    assert keys(project) == before


@pytest.mark.parametrize(
    ("setting", "stage"),
    [
        ("data.train_rows=1", "data"),
        ("data.calibration.rows=64", "quantize"),
        ("teacher.epochs=1", "teacher"),
        ("student.epochs=1", "student"),
        ("quantize.observer=abs_max", "quantize"),
        ("quantize.method=qat", "quantize"),
    ],
)
def test_a_change_of_one_section_reruns_what_depends_on_it(project: Path, setting: str, stage: str) -> None:
    before = keys(project)
    assert changed(before, keys(project, setting)) == begun_at(stage, before)


@pytest.mark.parametrize("setting", ["gates.cold_start.ms=900", "version=9.0.0"])
def test_what_makes_no_model_reruns_nothing_of_it(project: Path, setting: str) -> None:
    assert changed(keys(project), keys(project, setting)) == []


def test_a_seed_that_draws_no_rows_to_train_on_trains_nothing(project: Path) -> None:
    before = keys(project)
    assert changed(before, keys(project, "data.seed=1")) == ["data", *begun_at("quantize", before)]


def test_how_a_quantized_training_goes_decides(project: Path) -> None:
    def of(*settings: str) -> dict[str, str]:
        return keys(project, "quantize.method=qat", *settings)

    for setting in ("quantize.qat={epochs: 2}", "quantize.qat={quanter: lsq}", "quantize.embeddings=float"):
        assert changed(of(), of(setting)) == begun_at("quantize", of())
    assert changed(of(), of("quantize.qat={epochs: 1}")) == []  # the default


def test_how_many_train_decides_and_not_which_nor_where_they_meet(project: Path) -> None:
    def of(device: str, *nodes: str) -> dict[str, str]:
        return keys(project, f"teacher.device={device}", *(f"teacher.nodes={{{node}}}" for node in nodes))

    met = 'count: 2, master: "10.0.0.1:8379"'
    assert changed(of("gpu:0,1"), of("gpu:2,3")) == []
    assert changed(of("gpu"), of("gpu:1")) == []
    assert changed(of("gpu:0,1", met), of("gpu:4,5", 'count: 2, master: "other:1"')) == []
    assert changed(of("gpu:0,1", met), of("gpu:0,1,2,3")) == []  # four processes either way
    for other in (of("gpu:0,1,2"), of("gpu:0,1", met), of("gpu:0"), of("cpu")):
        assert changed(of("gpu:0,1"), other) == begun_at("teacher", other)
    linear = "teacher.scale_learning_rate=linear"
    assert changed(keys(project), keys(project, linear)) == []  # nothing to scale it with
    two = "teacher.device=gpu:0,1"
    assert changed(keys(project, two), keys(project, two, linear)) == begun_at("teacher", keys(project))


def test_without_distillation_the_teacher_decides_nothing_of_its_student(project: Path) -> None:
    alone = keys(project, "student.distill=null")
    assert changed(alone, keys(project, "student.distill=null", "teacher.epochs=1")) == ["teacher"]


TRIMMED = ["vocabulary_trimming", "quantize", "export"]


def test_a_vocabulary_is_trimmed_after_the_training_and_before_what_works_on_the_model(project: Path) -> None:
    trimmed = keys(project, "student.vocabulary=trim")
    assert_changed(keys(project), trimmed, TRIMMED)
    assert trimmed == keys(project, "student.vocabulary={trim: {min_count: 1}}")
    assert_changed(trimmed, keys(project, "student.vocabulary={trim: {min_count: 2}}"), TRIMMED)


def test_what_further_texts_hold_decides_and_not_where_they_lie(project: Path) -> None:
    for name in ("field.txt", "same.txt"):
        (project / name).write_text("a text\n", encoding="utf-8")
    (project / "field.jsonl").write_text('{"text": "a text"}\n', encoding="utf-8")
    setting = "student.vocabulary={{trim: {{texts: {}}}}}".format
    before = keys(project, setting("field.txt"))
    assert changed(before, keys(project, setting("same.txt"))) == []
    assert_changed(before, keys(project, setting("field.jsonl")), TRIMMED)
    assert_changed(before, keys(project, "student.vocabulary=trim"), TRIMMED)
    (project / "field.txt").write_text("another\n", encoding="utf-8")
    assert_changed(before, keys(project, setting("field.txt")), TRIMMED)


PRUNED = ["width_pruning", "quantize", "export"]


def test_a_width_is_pruned_after_its_training_and_before_its_vocabulary_is_trimmed(project: Path) -> None:
    width_pruned = keys(project, "student.width=0.75")
    assert_changed(keys(project), width_pruned, PRUNED)
    assert_changed(width_pruned, keys(project, "student.width=0.5"), PRUNED)
    assert keys(project, "student.width=1.0") == keys(project)
    both = keys(project, "student.width=0.75", "student.vocabulary=trim")
    assert_changed(width_pruned, both, TRIMMED)
    assert_changed(keys(project, "student.vocabulary=trim"), both, ["width_pruning", *TRIMMED])


def test_whom_a_width_pruned_student_learns_from_decides(project: Path) -> None:
    def of(*settings: str) -> dict[str, str]:
        return keys(project, "student.width=0.75", *settings)

    (project / "more.txt").write_text("a text\nanother\n", encoding="utf-8")
    assert_changed(of(), of("data.unlabelled=more.txt"), ["data", "student", *PRUNED])
    alone, untaught = of("student.distill=null"), of("teacher=null")
    assert changed(alone, of("student.distill=null", "teacher.epochs=1")) == ["teacher"]
    # The same student; with no teacher there is, it learns from itself once more.
    assert_changed(untaught, alone, ["teacher", *PRUNED])


def test_candidates_share_the_stages_that_they_do_not_differ_in(project: Path) -> None:
    def count(over: str) -> dict[str, int]:
        found = {key: name.partition(" ")[0] for name, key in keys(project, f"search={{over: {over}}}").items()}
        return {stage: n for stage, n in Counter(known(found.values())).items() if stage not in ("data", "teacher")}

    quantized = {"student": 1, "quantize": 4, "export": 4, "select": 1}
    assert count("{quantize.observer: [hist, kl], data.calibration.rows: [32, 64]}") == quantized
    over = "{student.width: [1.0, 0.75, 0.5], student.vocabulary: [keep, trim]}"
    assert count(over) == {
        "student": 1,
        "width_pruning": 2,
        "vocabulary_trimming": 3,
        "quantize": 6,
        "export": 6,
        "select": 1,
    }
    several = keys(project, f"search={{over: {over}}}")
    assert several["student width=0.5, vocabulary=keep"] == keys(project)["student"]
    assert several["width_pruning width=0.75, vocabulary=trim"] == keys(project, "student.width=0.75")["width_pruning"]


SEARCH = "search={over: {student.epochs: [1, 2]}}"


def test_a_candidate_is_the_student_of_a_recipe_that_has_no_other(project: Path) -> None:
    several = keys(project, SEARCH)
    for epochs in (1, 2):
        alone = keys(project, f"student.epochs={epochs}")
        for stage in ("student", "quantize", "export"):
            assert several[f"{stage} epochs={epochs}"] == alone[stage]
        assert several["teacher"] == alone["teacher"]


@pytest.mark.parametrize(
    ("search", "stages"),
    [
        ("{over: {student.epochs: [1, 2]}, tolerance_points: 2}", ["select"]),
        ("{over: {student.epochs: [2, 1]}}", ["select"]),  # the order decides between equals
        ("{over: {student.epochs: [1, 2]}, prefer: size}", ["select"]),
        ("{over: {student.epochs: [1, 2]}, max_candidates: 2}", []),
    ],
)
def test_a_change_of_the_search_keeps_what_was_made(project: Path, search: str, stages: list[str]) -> None:
    assert changed(keys(project, SEARCH), keys(project, f"search={search}")) == stages


def test_another_candidate_reruns_nothing_of_the_others(project: Path) -> None:
    before, after = keys(project, SEARCH), keys(project, "search={over: {student.epochs: [1, 2, 3]}}")
    third = [name for name in after if name.endswith(" epochs=3")]
    assert third[0] == "student epochs=3"
    assert changed(before, after) == [*third, "select"]


def test_gates_and_dev_rows_decide_which_candidate_goes_on(project: Path) -> None:
    before = keys(project, SEARCH)
    assert changed(before, keys(project, SEARCH, "gates.latency.p50_ms=3")) == ["select"]
    with (project / "dev.tsv").open("a", encoding="utf-8") as stream:
        stream.write("more\t1\n")
    assert "select" in changed(before, keys(project, SEARCH))


def test_a_change_of_the_teacher_reaches_every_candidate(project: Path) -> None:
    before = keys(project, SEARCH)
    assert sorted(changed(before, keys(project, SEARCH, "teacher.epochs=1"))) == sorted(begun_at("teacher", before))


def test_a_search_may_be_carried_to_another_place(project: Path) -> None:
    search = "search={over: {student.model: [./weights/nano, ./weights/base]}}"
    before = keys(project, search)
    assert {name.partition(" ")[0] for name in before} >= {"student", "select"}
    assert keys(project.rename(project.with_name("moved")), search) == before
