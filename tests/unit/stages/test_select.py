"""Which of several students goes on: by the dev rows and the size, never by the test rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.artifacts import Compared, Score, SelectArtifact, load, save
from edgepack.outcome import Build
from edgepack.progress import SILENT
from edgepack.recipe.model import Search
from edgepack.stages import select


def candidates(*figures: tuple[str, float, int]) -> list[Compared]:
    """Name, dev accuracy in percent, parameters."""
    return [
        Compared(name, Score(percent / 100, 0.0, 1.0, 1000, 0.95), parameters, 4 * parameters, 1.0)
        for name, percent, parameters in figures
    ]


@pytest.mark.parametrize(
    ("figures", "tolerance", "chosen", "why"),
    [
        ([("a", 90, 9)], 0.5, "a", "the only candidate"),
        ([("a", 90, 9), ("b", 89, 4)], 0.5, "a", "the best dev accuracy, 90.0 %; no other is within 0.5 points of it"),
        ([("a", 90, 9), ("b", 89.5, 4)], 0.5, "b", "the smallest of 2 within 0.5 points of the best"),
        ([("a", 90, 9), ("b", 89.499, 4)], 0.5, "a", "no other"),
        ([("a", 90, 9), ("b", 89, 4)], 1, "b", "the smallest of 2 within 1 point of the best"),
        ([("a", 90, 9), ("b", 60, 4)], 100, "b", "the smallest of 2 within 100 points"),
        ([("a", 89.9, 4), ("b", 90, 4), ("c", 90.2, 9)], 0.5, "b", "the best of the 2 smallest of 3"),
        ([("a", 90, 4), ("b", 90, 4)], 0, "a", "(its own)"),
        ([("a", 90, 9), ("b", 90, 4)], 0, "b", "(of a)"),
        ([("a", 0, 9), ("b", 0, 4)], 0.5, "b", "the smallest of 2"),
    ],
)
def test_the_smallest_that_is_near_the_best(
    figures: list[tuple[str, float, int]], tolerance: float, chosen: str, why: str
) -> None:
    found, reason = select.choose(candidates(*figures), tolerance)
    assert found.name == chosen
    assert why in reason


def test_the_artifact_tells_all_that_decided_and_nothing_of_test(tmp_path: Path, built: Build) -> None:
    better = replace(built.student, test_score=replace(built.student.test_score, value=0.999))
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}})
    made = select.run(section, {"epochs=1": built.student, "epochs=2": better}, ["epochs=3"], tmp_path, SILENT)
    assert made.chosen == "epochs=1"  # all else being equal, the first
    assert made.why.endswith("1 candidate could not be trained: epochs=3")
    save(made)
    assert "0.999" not in (tmp_path / "artifact.json").read_text(encoding="utf-8")
    assert load(SelectArtifact, tmp_path) == made
    assert made.candidates[0].dev_score == built.student.dev_score
