"""Sections: paths beside the recipe, and what is right in a section that has errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgepack.recipe.model import Gates, ImportedModel, OwnInterpreter, Recipe
from edgepack.recipe.section import AbsentError, or_none, right_part
from edgepack.recipe.training import FromScratch, FromTeacher, Student

FOLDER = {"folder": Path("/recipes")}
HEAD = {"edgepack": 1, "name": "a", "version": "1.0.0"}


def test_what_is_right_is_there_and_what_is_wrong_is_absent() -> None:
    written = {**HEAD, "version": 2, "data": {"train": "a.tsv", "seed": "x"}, "targets": ["local", 3], "linear": 1}
    recipe = right_part(Recipe, written, FOLDER)
    assert (recipe.name, recipe.targets) == ("a", ("local", None))
    assert (recipe.data.train, recipe.data.leaks) == ("/recipes/a.tsv", "drop")
    assert (recipe.teacher, recipe.serve) == (None, False)  # defaults
    for section, name in ((recipe, "version"), (recipe, "student"), (recipe.data, "seed")):
        with pytest.raises(AbsentError, match=name):
            getattr(section, name)
        assert or_none(section, name) is None
    assert recipe.data.model_fields_set == {"train"}


def test_a_mapping_keeps_its_right_entries_and_an_empty_list_is_wrong() -> None:
    written = {**HEAD, "wheels": {"local": ["a.whl", 1], "jetpack6": 7}, "targets": []}
    recipe = right_part(Recipe, written, {})
    assert recipe.wheels == {"local": ("a.whl", None)}
    assert or_none(recipe, "targets") is None


@pytest.mark.parametrize(
    ("written", "kind", "keys"),
    [
        ({"scratch": {"layers": 1}, "from": 3}, FromScratch, {"scratch"}),
        ({"from": "teacher", "layers": "x"}, FromTeacher, {"from_"}),
        ("./nano", str, set()),
    ],
)
def test_the_section_is_that_with_most_of_the_keys(written: Any, kind: type, keys: set[str]) -> None:
    student = right_part(Student, {"model": written, "epochs": "x"}, FOLDER)
    assert isinstance(student.model, kind)
    assert isinstance(student.model, str) or student.model.model_fields_set == keys


@pytest.mark.parametrize(
    ("section", "written", "locations"),
    [
        (Student, {"model": ["a"]}, ["model"]),
        (Student, {"model": {"from": "teacher", "layers": [1, 0]}}, ["model", "layers", 1]),
        (Student, {"model": "a", "vocabulary": "tri"}, ["vocabulary"]),
        (ImportedModel, {"graph": {"A": "a.onnx"}}, ["graph", "A", "[key]"]),
        (ImportedModel, {"graph": 3}, ["graph"]),
    ],
)
def test_the_errors_of_a_union_are_those_of_the_meant_type(
    section: Any, written: dict[str, Any], locations: list[Any]
) -> None:
    with pytest.raises(ValidationError) as caught:
        section.model_validate_json(json.dumps(written), strict=True)
    (error,) = caught.value.errors()
    assert [key for key in error["loc"] if not str(key).startswith("type ")] == locations


def test_paths_are_beside_the_recipe() -> None:
    own = OwnInterpreter.model_validate({"path": "a.tar.gz", "sha256": "0" * 64}, context=FOLDER)
    assert own.path == "/recipes/a.tar.gz"
    assert OwnInterpreter(path="a.tar.gz", sha256="0" * 64).path == "a.tar.gz"


def test_values_by_dotted_paths() -> None:
    gates = Gates.model_validate({"golden": {"rows": 5}, "latency": None})
    assert (gates.value_at("golden.rows"), gates.value_at("latency.p50_ms")) == (5, None)
    assert [gates.differs(key) for key in ("golden.rows", "golden.carry", "latency")] == [True, False, False]
    assert gates.with_default("golden.rows").golden.rows == 2000
    assert gates.changed(golden=gates.golden).model_fields_set == {"golden", "latency"}
