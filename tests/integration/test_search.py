"""Several candidates in one recipe, with the real stack: students trained once each, and what would ship compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import RECIPE, SMALL_STEPS, STEPS, STUDENT, Project
from tests.stage_lists import begun, known

pytestmark = pytest.mark.integration
SHAPES = ("{scratch: {layers: 2, hidden: 32, heads: 4}}", "{scratch: {layers: 1, hidden: 16, heads: 2}}")
METHODS = ("dynamic", "none")
NAMES = [f"model={shape}, method={method}" for shape in SHAPES for method in METHODS]
SEARCH = f"""\
linear: off
search:
  over:
    student.model: [{", ".join(SHAPES)}]
    quantize.method: [{", ".join(METHODS)}]
  tolerance_points: 100
"""
CHAIN = ["student", "quantize", "export", "quantize", "export"]
UNTIL_SELECT = ["data", "teacher", *CHAIN, *CHAIN, "select"]


@pytest.fixture(scope="module")
def searched(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    copy = project.copy(tmp_path_factory.mktemp("searched") / "project")
    assert STUDENT + STEPS in RECIPE
    (copy.folder / "several.yaml").write_text(RECIPE.replace(STUDENT + STEPS, SMALL_STEPS) + SEARCH, encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def first(searched: Project) -> dict[str, Any]:
    """What the first build said: it ends when one candidate is chosen."""
    done = searched.edgepack("build", "several.yaml", "--until", "select", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.count("train teacher: ") == 0, "the teacher of the project is cached"
    assert done.stderr.count("train student: epoch 1: ") == 2
    lines = begun(done.stderr)
    assert known(line.stage for line in lines) == UNTIL_SELECT
    assert lines[0].total >= len(lines) + 2  # bundle and gate are not asked for
    assert [line.label for line in lines if line.stage == "quantize"] == NAMES
    assert "timing 4 models, interleaved" in done.stderr
    return json.loads(done.stdout)


def artifact(project: Project, folder: str) -> dict[str, Any]:
    return json.loads((project.folder / folder / "artifact.json").read_text(encoding="utf-8"))


def test_what_would_ship_of_each_is_compared(searched: Project, first: dict[str, Any]) -> None:
    assert known(stage["stage"] for stage in first["stages"]) == UNTIL_SELECT
    students = [stage for stage in first["stages"] if stage["stage"] == "student"]
    assert [student["candidates"] for student in students] == [NAMES[:2], NAMES[2:]]
    candidates = first["selection"]["candidates"]
    assert [one["name"] for one in candidates] == NAMES
    exports = [stage for stage in first["stages"] if stage["stage"] == "export"]
    for one, stage in zip(candidates, exports, strict=True):
        exported = artifact(searched, stage["folder"])
        folder = {"int8": "onnx-int8", "float32": "onnx-float"}[exported["shipped"]]
        file = searched.folder / stage["folder"] / folder / "model.onnx"
        assert (one["precision"], one["onnx_bytes"]) == (exported["shipped"], file.stat().st_size)
        assert stage["candidates"] == [one["name"]]
        assert one["p50_ms"] > 0
        assert one["dev_score"]["n"] == 60
    # The runtime answers the dev rows as Paddle did; where nothing is quantized that is what the student answered.
    trained = [artifact(searched, student["folder"]) for student in students]
    assert [one["dev_score"] for one in candidates[1::2]] == [student["dev_score"] for student in trained]


def test_the_fastest_or_of_alike_ones_the_smallest_goes_on(first: dict[str, Any]) -> None:
    candidates = {one["name"]: one for one in first["selection"]["candidates"] if not one["missed"]}
    chosen = candidates[first["selection"]["chosen"]]
    assert chosen["p50_ms"] <= 1.05 * min(one["p50_ms"] for one in candidates.values())
    assert f"model={SHAPES[1]}" in chosen["name"]
    rows = [row["stage"] for row in first["ledger"]]
    assert rows[:4] == ["teacher", "student", "static graph", "float ONNX"]
    assert rows.count("student") == 1


def test_a_second_build_makes_nothing_and_says_the_same(searched: Project, first: dict[str, Any]) -> None:
    again = searched.edgepack("build", "several.yaml", "--until", "select", "--json")
    assert again.returncode == 0, again.stderr[-2000:]
    lines = begun(again.stderr)
    assert known(line.stage for line in lines) == UNTIL_SELECT
    assert {line.note for line in lines} == {"cached"}
    assert "done in" not in again.stderr
    assert json.loads(again.stdout) == first


def test_the_recipe_of_the_chosen_candidate_alone_is_built_already(searched: Project, first: dict[str, Any]) -> None:
    method = first["selection"]["chosen"].rpartition("=")[2]
    alone = (
        RECIPE.replace(STUDENT + STEPS, f"  model: {SHAPES[1]}\n{SMALL_STEPS}")
        + f"linear: off\nquantize: {{method: {method}}}\n"
    )
    (searched.folder / "alone.yaml").write_text(alone, encoding="utf-8")
    done = searched.edgepack("plan", "alone.yaml", "--json")
    states = {stage["stage"]: stage for stage in json.loads(done.stdout)["stages"]}
    assert known(stage for stage, planned in states.items() if planned["state"] == "cached") == [
        "data", "teacher", "student", "quantize", "export",
    ]  # fmt: skip
    exports = {tuple(one["candidates"]): one["folder"] for one in first["stages"] if one["stage"] == "export"}
    assert Path(states["export"]["folder"]).name == Path(exports[first["selection"]["chosen"],]).name


def test_another_rule_chooses_anew_and_trains_nothing(searched: Project, first: dict[str, Any]) -> None:
    settings = ("--set", "search.prefer=size", "--set", "gates.accuracy.min=0.99")
    done = searched.edgepack("build", "several.yaml", "--until", "select", *settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("done in") == 1  # select alone
    assert "chosen: model=" in done.stdout
    assert "where all 4 miss a gate: " in done.stdout
