"""`search`: every combination is a whole recipe, with a name of its own and findings that tell where a value stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.model_folders import write_model

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import Distill, FromTeacher

RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
teacher: {model: ernie-3.0-medium-zh}
student:
  epochs: 5
search:
"""
ONE_MODEL = RECIPE.replace("  epochs: 5\n", "  model: ./nano\n")
MODELS = "  over: {student.model: [./nano, {from: teacher, layers: 4}], student.distill.hidden: [false, true]}\n"


def load(folder: Path, text: str, *settings: str) -> Recipe:
    for name in ("nano", "deep/nano"):
        write_model(folder / name)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    return load_recipe(folder / "recipe.yaml", {"local"}, settings)


def names(recipe: Recipe) -> list[str]:
    return [candidate.name for candidate in recipe.candidates]


def test_every_combination_is_a_candidate_in_the_order_of_the_recipe(tmp_path: Path) -> None:
    plain = RECIPE + MODELS.replace("./nano", "ernie-3.0-nano-zh")
    assert names(load(tmp_path, plain)) == [
        "model=ernie-3.0-nano-zh, hidden=false",
        "model=ernie-3.0-nano-zh, hidden=true",
        "model={from: teacher, layers: 4}, hidden=false",
        "model={from: teacher, layers: 4}, hidden=true",
    ]


def test_a_candidate_is_a_resolved_recipe_without_a_search(tmp_path: Path) -> None:
    text = RECIPE + MODELS.replace(", student.distill.hidden: [false, true]", "")
    one, other = load(tmp_path, text).candidates
    assert one.recipe.search is None
    assert one.recipe.candidates == ()
    assert one.recipe.student.model == str(tmp_path / "nano")
    assert one.recipe.student.epochs == 5
    assert isinstance(other.recipe.student.model, FromTeacher)
    assert one.name == "model=./nano"
    alone = RECIPE.replace("search:\n", "  model: ./nano\n")
    assert load(tmp_path, alone).student == one.recipe.student


def test_sections_on_the_way_are_made(tmp_path: Path) -> None:
    text = (
        RECIPE.replace("  epochs: 5\n", "  model: ./nano\n  max_length: 128\n")
        + "  over: {student.distill.relations: [true]}\n"
    )
    (only,) = load(tmp_path, text.replace("ernie-3.0-medium-zh", "./nano")).candidates
    assert only.recipe.student.distill == Distill(relations=True)


def test_the_first_candidate_stands_for_all_until_one_is_chosen(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE + MODELS.replace(", student.distill.hidden: [false, true]", ""))
    assert recipe.student == recipe.candidates[0].recipe.student
    assert recipe.students == tuple(candidate.recipe.student for candidate in recipe.candidates)
    assert recipe.search is not None
    assert recipe.search.tolerance_points is None
    plain = load(tmp_path, RECIPE.replace("search:\n", "  model: ./nano\n"))
    assert plain.candidates == ()
    assert plain.students == (plain.student,)


def test_a_name_holds_no_path_of_this_machine_and_is_the_only_one(tmp_path: Path) -> None:
    over = f"  over: {{student.model: [{tmp_path}/nano, {tmp_path}/deep/nano], student.epochs: [1]}}\n"
    found = names(load(tmp_path, RECIPE + over))
    assert found == ["model=nano, epochs=1 (number 1)", "model=nano, epochs=1 (number 2)"]


def test_names_tell_keys_that_end_alike_apart(tmp_path: Path) -> None:
    text = RECIPE.replace("  epochs: 5\n", "  model: {from: teacher, layers: 2}\n")
    over = "  over: {student.model.layers: [2, 3], student.distill: [{hidden: true}]}\n"
    assert names(load(tmp_path, text + over)) == [
        "layers=2, distill={hidden: true}",
        "layers=3, distill={hidden: true}",
    ]
    over = (
        "  over: {student.model.layers: [2], student.distill.layers: [null, [2, 4]], student.distill.hidden: [true]}\n"
    )
    assert names(load(tmp_path, text + over)) == [
        "model.layers=2, distill.layers=null, hidden=true",
        "model.layers=2, distill.layers=[2, 4], hidden=true",
    ]


def test_settings_may_make_and_end_a_search(tmp_path: Path) -> None:
    text = RECIPE.replace("  epochs: 5\nsearch:\n", "  model: ./nano\n")
    assert names(load(tmp_path, text, "search={over: {student.epochs: [1, 2]}}")) == ["epochs=1", "epochs=2"]
    whole = RECIPE + MODELS
    ended = load(tmp_path, whole, "search=null", "student.model=./nano")
    assert ended.candidates == ()
    with pytest.raises(RecipeInvalidError, match="1 error") as caught:
        load(tmp_path, text, "search={over: {student.epochs: [1, -2]}}")
    (finding,) = caught.value.findings
    assert finding.place.startswith("--set search={over")
    assert (finding.key, finding.reason.rpartition(" (")[2]) == ("student.epochs", "candidate with epochs=-2)")


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("{student.epochs: [0, 1, 2]}", "(candidate with epochs=0)"),
        ("{student.epochs: [0, 1], student.seed: [1, 2]}", "(candidates with epochs=0)"),
        ("{student.epochs: [0]}", ""),
    ],
)
def test_a_finding_names_the_candidates_that_have_it(tmp_path: Path, over: str, message: str) -> None:
    text = ONE_MODEL + f"  over:\n    {over.strip('{}')}\n"
    with pytest.raises(RecipeInvalidError) as caught:
        load(tmp_path, text.replace(", student.seed", "\n    student.seed"))
    (finding,) = caught.value.findings
    assert finding.line == 10
    assert finding.key == "student.epochs"
    assert finding.reason.endswith(f"> 0, ≤ 1000 {message}".strip())


def test_a_finding_of_several_values_names_their_candidate(tmp_path: Path) -> None:
    """A teacher of 512 positions: 600 is too long for it; and with parts of 40 no step of 32 rows can be cut."""
    text = ONE_MODEL
    over = "  over:\n    student.batch_size: [8, 16]\n    student.gradient_accumulation: [4, 12, 20]\n"
    with pytest.raises(RecipeInvalidError) as caught:
        load(tmp_path, text + over)
    assert {finding.key for finding in caught.value.findings} == {"student.gradient_accumulation"}
    assert [finding.reason.rpartition(" (")[2] for finding in caught.value.findings] == [
        "candidate with batch_size=8, gradient_accumulation=12)",
        "candidate with batch_size=8, gradient_accumulation=20)",
        "candidate with batch_size=16, gradient_accumulation=20)",
    ]


def test_no_limit_of_candidates_is_above_that_of_the_format(tmp_path: Path) -> None:
    many = f"search={{over: {{student.epochs: [{', '.join(map(str, range(1, 301)))}]}}, max_candidates: 300}}"
    with pytest.raises(RecipeInvalidError) as caught:
        load(tmp_path, RECIPE.replace("search:\n", "  model: ./nano\n"), many)
    reasons = [finding.reason for finding in caught.value.findings]
    assert any("makes 300 candidates" in reason for reason in reasons)  # and none is made


def test_ways_to_quantize_and_rows_to_calibrate_with_may_be_searched_over(tmp_path: Path) -> None:
    text = ONE_MODEL
    over = "  over: {quantize.observer: [hist, kl], data.calibration.rows: [32, 64]}\n"
    recipe = load(tmp_path, text + over)
    assert [(one.recipe.quantize.observer, one.recipe.data.calibration.rows) for one in recipe.candidates] == [
        ("hist", 32), ("hist", 64), ("kl", 32), ("kl", 64),
    ]  # fmt: skip
    assert names(recipe)[1] == "observer=hist, rows=64"
    assert recipe.candidates[0].values == (("observer", "hist"), ("rows", "32"))
    assert len({one.recipe.student for one in recipe.candidates}) == 1
    methods = load(tmp_path, text + "  over: {quantize.method: [ptq, fp16]}\n")
    assert [one.recipe.quantize.method for one in methods.candidates] == ["ptq", "fp16"]


def test_how_to_train_is_for_those_candidates_that_are_trained_so(tmp_path: Path) -> None:
    text = RECIPE.replace("  epochs: 5\n", "  model: ./nano\nquantize: {qat: {epochs: 2}}\n")
    ptq, qat = load(tmp_path, text + "  over: {quantize.method: [ptq, qat]}\n").candidates
    assert (ptq.recipe.quantize.method, qat.recipe.quantize.method) == ("ptq", "qat")
    with pytest.raises(RecipeInvalidError) as caught:
        load(tmp_path, text + "  over: {quantize.method: [ptq, dynamic]}\n")
    assert caught.value.findings[0].key == "quantize.qat"
