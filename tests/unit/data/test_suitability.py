"""Warnings about a valid recipe and valid data."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.artifacts import DataArtifact, Row
from edgepack.data.lengths import Lengths
from edgepack.data.suitability import LabelledRows, check_suited, require_judged_by, row_findings
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import Candidate, Recipe

FILE = Path("recipe.yaml")


def made(data: dict[str, object], **gate: object) -> Recipe:
    return Recipe.model_validate({
        "edgepack": 1, "name": "a", "version": "1.0.0",
        "data": {"train": "a.tsv", **data}, "student": {"model": "ernie-1.0", "max_length": 32},
        "gates": {"accuracy": gate} if gate else {"size": {"model_mib": 40}},
    })  # fmt: skip


def warnings(data: dict[str, object], rows: int = 300, longest: int = 20, test: int = 30, **gate: object) -> list[str]:
    lengths = {"train": Lengths({longest: rows}), "test": Lengths({20: test})}
    held = [Row(f"第{n}条", "a" if n % 10 else "b") for n in range(test)]
    found = check_suited(made(data, **gate), LabelledRows(["a", "b"], lengths, rows, lambda _: held), FILE)
    assert {finding.severity for finding in found} <= {"warning"}
    return [finding.reason for finding in found]


@pytest.mark.parametrize(
    "data", [{}, {"train_rows": 300}, {"train_rows": 20}, {"calibration": {"rows": 300}}, {"calibration": {}}], ids=str
)
def test_samples_that_fit_have_no_warning(data: dict[str, object]) -> None:
    assert warnings(data) == []
    assert warnings({}, rows=100) == []  # the default asks for more


def test_missing_gates_and_texts_that_would_be_cut_have_warnings() -> None:
    recipe = made({}).model_copy(update={"gates": Gates()})
    (finding,) = check_suited(recipe, LabelledRows(["a", "b"], {"train": Lengths({20: 300})}, 300, list), FILE)
    assert (finding.severity, finding.file) == ("warning", FILE)
    assert finding.reason.startswith("the recipe sets no gates: ")
    (reason,) = warnings({}, longest=40)
    assert "longer than 32 tokens (`student.max_length`)" in reason


def test_a_metric_that_so_many_labels_do_not_have_is_refused() -> None:
    recipe = made({}, metric="f1", min=0.9)
    require_judged_by(recipe, ["a", "b"])
    with pytest.raises(
        RecipeInvalidError, match=r"`gates\.accuracy\.metric` is f1, which 3 labels do not have"
    ) as caught:
        require_judged_by(recipe, ["a", "b", "c"])
    assert "macro_f1" in str(caught.value.fix)
    require_judged_by(made({}, metric="macro_f1", min=0.9), ["a", "b", "c"])


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


def test_the_warning_is_of_the_candidate_that_calibrates_with_most_rows() -> None:
    few, many = (made({"calibration": {"rows": rows}}) for rows in (32, 301))
    recipe = few.with_candidates((Candidate("rows=32", few), Candidate("rows=301", many)))
    lengths = {"train": Lengths({20: 300})}
    (finding,) = check_suited(recipe, LabelledRows(["a", "b"], lengths, 300, list), FILE)
    assert "asks for 301 rows" in finding.reason


def test_a_build_has_the_warnings_of_the_rows_that_it_laid_down(tmp_path: Path) -> None:
    rows = "".join(f'{{"text": "第{n}条", "label": "0"}}\n' for n in range(40))
    (tmp_path / "test.jsonl").write_text(rows, encoding="utf-8")
    data = DataArtifact(
        tmp_path,
        labels=("0", "1"),
        rows={"train": 300, "dev": 40, "test": 40},
        warnings=(),
        token_counts={"train": {20: 300}, "dev": {20: 40}, "test": {20: 40}},
    )
    (finding,) = row_findings(made({}, metric="f1", max_drop_points=1.0), LabelledRows.of(data))
    assert "`gates.accuracy` asks for figures of '1', and no test row has such a label" in finding.reason
    assert row_findings(made({}, metric="accuracy", max_drop_points=10.0), LabelledRows.of(data)) == []
