"""Why a stage runs: two results compared, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.build.conftest import STAGES

from edgepack.artifacts import DataArtifact
from edgepack.build import reasons
from edgepack.build.workspace import Earlier, Record, Workspace
from edgepack.stages.data import DataStage
from edgepack.stages.stage import Input, Key, MadeOf, Stage
from edgepack.stages.train import StudentStage

BEFORE = MadeOf(
    8,
    {"max_length": 128, "model": {"scratch": {"layers": 2}}, "learning_rate": 3e-5},
    (Input("train", "a", 600), Input("weights of teacher", "b"), Input("weights of teacher", "c")),
    {"paddlepaddle": "3.3.0"},
)


def texts(before: MadeOf, after: MadeOf, stage: type[Stage[Any]] = StudentStage) -> list[str]:
    return [one.text for one in reasons.changes(stage, before, after)]


def with_train(digest: str, rows: int | None) -> tuple[Input, ...]:
    return (Input("train", digest, rows), *BEFORE.inputs[1:])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"section": {**BEFORE.section, "max_length": 64}}, ["student.max_length 128 -> 64"]),
        ({"section": {**BEFORE.section, "model": {"scratch": {"layers": 4}}}}, ["student.model.scratch.layers 2 -> 4"]),
        ({"section": {**BEFORE.section, "learning_rate": 1e-4}}, ["student.learning_rate 3e-05 -> 0.0001"]),
        ({"section": {**BEFORE.section, "max_length": "x" * 41}}, ["student.max_length changed"]),
        ({"inputs": with_train("z", 630)}, ["train: 30 rows more"]),
        ({"inputs": with_train("z", 599)}, ["train: 1 row fewer"]),
        ({"inputs": with_train("z", 600)}, ["train: other rows"]),
        ({"inputs": with_train("z", None)}, ["train changed"]),
        ({"inputs": with_train("a", None)}, []),
        ({"inputs": BEFORE.inputs[:2]}, ["weights of teacher changed"]),
        ({"inputs": BEFORE.inputs[:1]}, ["weights of teacher removed"]),
        ({"inputs": (*BEFORE.inputs, Input("unlabelled", "d", 5))}, ["unlabelled added"]),
        ({"version": 9}, ["edgepack's stage version 8 -> 9"]),
        ({"versions": {"paddlepaddle": "3.3.1"}}, ["paddlepaddle 3.3.0 -> 3.3.1"]),
        ({"versions": {}}, ["paddlepaddle 3.3.0 -> not installed"]),
    ],
)
def test_each_difference_is_said_in_words(changed: dict[str, Any], found: list[str]) -> None:
    assert texts(BEFORE, replace(BEFORE, **changed)) == found


@pytest.mark.parametrize(
    ("stage", "before", "after", "found"),
    [
        ("quantize", {"quantize": {"method": "ptq"}}, {"quantize": {"method": "qat"}}, "quantize.method ptq -> qat"),
        ("quantize", {"seed": 0}, {"seed": 1}, "data.seed 0 -> 1"),
        ("width_pruning", {"width": 0.75}, {"width": 0.5}, "student.width 0.75 -> 0.5"),
        (
            "vocabulary_trimming",
            {"trimming": {"texts": "a"}},
            {"trimming": {"texts": "b"}},
            "student.vocabulary.trim.texts a -> b",
        ),
        ("select", {"gates": {"size": None}}, {"gates": {"size": 3}}, "gates.size null -> 3"),
        ("gate", "local", "linux", "target local -> linux"),
        ("bundle", {"recipe": "0" * 64}, {"recipe": "1" * 64}, "recipe changed"),
        ("teacher", {"epochs": 1}, {"epochs": 2}, "teacher.epochs 1 -> 2"),
    ],
)  # fmt: skip
def test_values_have_the_names_of_the_recipe(stage: str, before: Any, after: Any, found: str) -> None:
    assert texts(MadeOf(1, before, (), {}), MadeOf(1, after, (), {}), STAGES[stage]) == [found]


def test_inputs_are_not_a_stage_s_own_change() -> None:
    after = MadeOf(9, {**BEFORE.section, "max_length": 64}, with_train("z", 630), {})
    assert [one.own for one in reasons.changes(StudentStage, BEFORE, after)] == [False, True, True, True]


def test_many_changes_stay_on_one_line() -> None:
    def words(*names: str) -> str:
        return reasons.in_words([reasons.Reason(name, own=True) for name in names])

    assert words("a", "b", "c") == "a; b; c"
    assert words("a", "b", "c", "d") == "a; b; c; 1 more change"
    assert words("a", "b", "c", "d", "e") == "a; b; c; 2 more changes"


def earlier(*made_of: MadeOf) -> Sequence[Earlier]:
    return [Earlier(Record(one, 1.0), Path(str(number))) for number, one in enumerate(made_of)]


def test_a_stage_is_compared_with_the_result_that_differs_least_and_then_the_newest() -> None:
    far = replace(BEFORE, version=1, versions={}, inputs=())
    near = [replace(BEFORE, version=version) for version in (2, 3)]
    found = reasons.closest(StudentStage, BEFORE, earlier(far, *near))
    assert found is not None
    assert found.record.made_of is near[0]
    assert reasons.closest(StudentStage, BEFORE, []) is None


def test_damage_comes_before_changes(tmp_path: Path) -> None:
    workspace, key = Workspace(tmp_path), Key("data", "0" * 64, BEFORE)
    (other,) = earlier(replace(BEFORE, version=1))
    (same,) = earlier(BEFORE)
    assert reasons.why(DataStage, key, None, workspace) == "no result yet"
    assert reasons.why(DataStage, key, other, workspace) == "edgepack's stage version 1 -> 8"
    assert reasons.why(DataStage, key, same, workspace) == "the last data did not pass"
    folder = workspace.build(key, lambda out: DataArtifact(out, ("a",), {}, ())).artifact.folder
    (folder / "artifact.json").write_text("{", encoding="utf-8")
    assert workspace.load(DataArtifact, key) is None
    assert reasons.why(DataStage, key, same, workspace) == "the result is damaged"
