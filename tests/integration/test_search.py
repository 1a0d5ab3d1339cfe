"""Several students in one recipe, with the real stack: trained once each, and one chosen, which alone is built on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import RECIPE, Project, write_rows

pytestmark = pytest.mark.integration
SHAPES = ("{scratch: {layers: 2, hidden: 32, heads: 4}}", "{scratch: {layers: 1, hidden: 16, heads: 2}}")
STUDENT = "  model: {scratch: {layers: 2, hidden: 312, heads: 12}}\n"
SEARCH = f"search:\n  over:\n    student.model: [{', '.join(SHAPES)}]\n  tolerance_points: 100\n"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("searched")
    write_rows(folder)
    assert STUDENT in RECIPE
    (folder / "several.yaml").write_text(RECIPE.replace(STUDENT, "") + SEARCH, encoding="utf-8")
    alone = f"  model: {SHAPES[1]}\n"
    (folder / "alone.yaml").write_text(RECIPE.replace(STUDENT, alone), encoding="utf-8")
    return Project(folder)


@pytest.fixture(scope="module")
def first(searched: Project) -> dict[str, Any]:
    """What the first build said: it ends after the export of the chosen student."""
    done = searched.edgepack("build", "several.yaml", "--until", "export", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.count("train teacher: ") == 1
    assert done.stderr.count("train student: ") == 2
    return json.loads(done.stdout)


def test_the_smallest_within_the_tolerance_goes_on(searched: Project, first: dict[str, Any]) -> None:
    stages = [stage["stage"] for stage in first["stages"]]
    assert stages == ["data", "teacher", "student", "student", "select", "quantize", "export"]
    folders = [searched.folder / stage["folder"] for stage in first["stages"]]
    selected, *students = (json.loads((folders[at] / "artifact.json").read_text(encoding="utf-8")) for at in (4, 2, 3))
    assert [one["dev_score"] for one in selected["candidates"]] == [one["dev_score"] for one in students]
    assert students[0]["parameters"] > students[1]["parameters"]
    assert [one["name"] for one in first["selection"]["candidates"]] == [f"model={shape}" for shape in SHAPES]
    assert selected["chosen"] == first["selection"]["chosen"] == first["stages"][3]["candidate"] == f"model={SHAPES[1]}"
    assert [row["stage"] for row in first["ledger"]][:2] == ["teacher", "student"]
    assert first["ledger"][1]["score"] == students[1]["test_score"]


def test_a_second_build_trains_nothing_and_says_the_same(searched: Project, first: dict[str, Any]) -> None:
    again = searched.edgepack("build", "several.yaml", "--until", "export", "--json")
    assert again.returncode == 0, again.stderr[-2000:]
    assert "train " not in again.stderr
    assert again.stderr.count("(cached)") == 7
    assert json.loads(again.stdout) == first


def test_the_recipe_of_the_chosen_student_alone_is_built_already(searched: Project, first: dict[str, Any]) -> None:
    done = searched.edgepack("plan", "alone.yaml", "--json")
    states = {stage["stage"]: stage for stage in json.loads(done.stdout)["stages"]}
    assert {stage for stage, planned in states.items() if planned["state"] == "cached"} == {
        "data", "teacher", "student", "quantize", "export",
    }  # fmt: skip
    assert Path(states["export"]["folder"]).name == Path(first["stages"][-1]["folder"]).name


def test_another_tolerance_chooses_anew_and_trains_nothing(searched: Project, first: dict[str, Any]) -> None:
    done = searched.edgepack("build", "several.yaml", "--until", "select", "--set", "search.tolerance_points=0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "train " not in done.stderr
    assert "chosen: model=" in done.stdout
