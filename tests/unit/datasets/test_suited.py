"""Warnings about a valid recipe and valid data."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.datasets.lengths import Lengths
from edgepack.datasets.suited import check_suited
from edgepack.recipe.model import Recipe

FILE = Path("recipe.yaml")


def warnings(data: dict[str, object], rows: int = 300, labels: int = 2, longest: int = 20) -> list[str]:
    recipe = Recipe.model_validate({
        "edgepack": 1, "name": "a", "version": "1.0.0",
        "data": {"train": "a.tsv", **data}, "student": {"model": "ernie-1.0", "max_length": 32},
    })  # fmt: skip
    found = check_suited(recipe, rows, labels, {"train": Lengths({longest: rows})}, FILE)
    assert {finding.severity for finding in found} <= {"warning"}
    return [finding.reason for finding in found]


@pytest.mark.parametrize(
    "data", [{}, {"train_rows": 300}, {"train_rows": 20}, {"calibration": {"rows": 300}}, {"calibration": {}}], ids=str
)
def test_what_fits_needs_no_word(data: dict[str, object]) -> None:
    assert warnings(data) == []


def test_a_default_larger_than_the_data_needs_no_word() -> None:
    assert warnings({}, rows=100) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"train_rows": 301}, "asks for 301 rows, and train has 300 rows: all of them are used"),
        ({"train_rows": 19}, "leaves 19 rows for 2 labels, too few"),
        ({"train_rows": 1}, "leaves 1 row for 2 labels, too few"),
        ({"calibration": {"rows": 301}}, "asks for 301 rows, and 300 are trained on: all are used"),
        ({"train_rows": 50, "calibration": {"rows": 64}}, "asks for 64 rows, and 50 are trained on"),
    ],
    ids=str,
)
def test_samples_that_cannot_be_drawn_or_teach_nothing(data: dict[str, object], words: str) -> None:
    (reason,) = warnings(data)
    assert words in reason


def test_texts_that_would_be_cut() -> None:
    (reason,) = warnings({}, longest=40)
    assert "longer than 32 tokens (`student.max_length`)" in reason
