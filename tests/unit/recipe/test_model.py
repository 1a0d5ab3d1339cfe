"""Recipes with `linear: only`: what they need, ignore and refuse, and how another recipe becomes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import AnyRecipe, LinearRecipe, Recipe

RECIPE = """\
edgepack: 1
name: a
version: 1.0.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n", encoding="utf-8")
    (tmp_path / "more.txt").write_text("好\n", encoding="utf-8")
    (tmp_path / "a.whl").touch()
    return tmp_path


def load(folder: Path, more: str, *settings: str) -> AnyRecipe:
    (folder / "recipe.yaml").write_text(RECIPE + more, encoding="utf-8")
    return load_recipe(folder / "recipe.yaml", {"local"}, settings)


def refused(folder: Path, more: str, *settings: str) -> list[tuple[Any, str]]:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, more, *settings)
    return [(found.line or found.setting, found.key) for found in caught.value.findings]


def test_it_needs_rows_alone(folder: Path) -> None:
    recipe = load(folder, "linear: only\n")
    assert isinstance(recipe, LinearRecipe)
    assert recipe.data.train == str(folder / "train.tsv")
    assert (recipe.notes, recipe.needs_engine) == ((), False)


def test_what_an_encoder_would_need_is_named_and_not_used(folder: Path) -> None:
    more = (
        "teacher: {model: ernie-1.0}\nstudent: {model: ./no-such-folder}\nquantize: {method: none}\n"
        "wheels: {local: [a.whl]}\n"
    )
    recipe = load(folder, more, "linear=only", "data.unlabelled=more.txt")
    assert isinstance(recipe, LinearRecipe)
    assert (recipe.teacher, recipe.student, recipe.quantize, recipe.wheels) == (None, None, None, {})
    assert recipe.data.unlabelled is None
    [note] = recipe.notes
    assert note.endswith(": `teacher`, `student`, `quantize`, `data.unlabelled`, `wheels`")
    assert (6, "student.modell") in refused(folder, "linear: only\nstudent: {modell: ernie-1.0}\n")


@pytest.mark.parametrize(
    ("more", "line", "key"),
    [
        ("gates: {accuracy: {min: 0.9,\n  max_drop_points: 1}}\n", 7, "gates.accuracy.max_drop_points"),
        ("gates:\n  latency:\n    by_length: [{max_tokens: 9, p50_ms: 1}]\n", 8, "gates.latency.by_length"),
        ("search: {over: {student.layers: [1, 2]}}\n", 6, "search"),
    ],
)
def test_keys_that_judge_against_an_encoder_are_refused(folder: Path, more: str, line: int, key: str) -> None:
    assert refused(folder, "linear: only\n" + more) == [(line, key)]


def test_tokens_are_refused(folder: Path) -> None:
    assert (6, "linear") in refused(folder, "task: token-classification\nlinear: only\n")


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ("", ["linear=only"]),
        ("gates: {accuracy: {min: 0.9}}\n", ["linear=only"]),
        ("gates: {accuracy: {min: 0.9, max_drop_points: 1}}\n", ["linear=only", "gates.accuracy.max_drop_points=null"]),
        ("gates: {accuracy: {metric: macro_f1, max_drop_points: 1}}\n", ["linear=only", "gates.accuracy=null"]),
        (
            "gates: {latency: {p50_ms: 1, by_length: [{max_tokens: 9, p50_ms: 1}]}}\n",
            ["linear=only", "gates.latency.by_length=[]"],
        ),
        ("search: {over: {student.epochs: [1, 2]}}\n", ["linear=only", "search=null"]),
    ],
)
def test_another_recipe_becomes_one_by_the_settings_that_are_named(
    folder: Path, more: str, settings: list[str]
) -> None:
    more += "student: {model: ernie-3.0-tiny-nano-v2-zh}\n"
    recipe = load(folder, more)
    assert isinstance(recipe, Recipe)
    chosen = recipe.candidates[0].recipe if recipe.candidates else recipe
    assert list(LinearRecipe.settings(chosen, searched=bool(recipe.candidates))) == settings
    assert isinstance(load(folder, more, *settings), LinearRecipe)
