"""What travels in place of texts that a bundle does not carry has nothing of them but their length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.artifacts import Row
from edgepack.bundle import golden
from edgepack.bundle.golden import placeholder_rows
from edgepack.export.linear_folder import write_linear
from edgepack.progress import SILENT
from edgepack.recipe.gates import GoldenRows
from edgepack_runtime.inference.linear import document
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

MakeModel = Callable[..., Path]
TEXTS = ["房间很大", "服务", "wifi 很好!", "", "差" * 700, "\u200b\n"]

TASK = task_by_name(ONE_TEXT)


@pytest.fixture
def model(tmp_path: Path, make_model: MakeModel) -> Path:
    return make_model(tmp_path / "model", seed=1)


def characters(rows: list[Row]) -> set[str]:
    return set("".join(text for row in rows for text in row.texts))


def test_they_are_as_long_for_the_model_and_of_its_own_characters(model: Path) -> None:
    rows = [Row(text, "0") for text in TEXTS]
    made = placeholder_rows(rows, model)
    assert made == placeholder_rows(rows, model)  # as in any other build
    predictor = Predictor(model)
    assert [predictor.text_model.tokens(row.item) for row in made] == [
        predictor.text_model.tokens(text) for text in TEXTS
    ]
    assert len(made[4].text) == 700  # cut by the model, not here
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert characters(made) <= set(vocabulary)
    assert not set(TEXTS) - {""} & {row.text for row in made}
    assert all(row.label == () for row in made)


def test_of_pairs_both_are_made_up(model: Path) -> None:
    [made] = placeholder_rows([Row("房间", "0", "服务不好")], model)
    assert (len(made.text), len(made.text_pair or "")) == (2, 4)


def test_a_vocabulary_without_chinese_still_has_texts(model: Path) -> None:
    vocab = model / "vocab.txt"
    kept = [
        line if not "一" <= line <= "鿿" else f"x{n}" for n, line in enumerate(vocab.read_text("utf-8").split("\n"))
    ]
    vocab.write_text("\n".join(kept), encoding="utf-8")
    assert placeholder_rows([Row("房间", "0")], model) == [Row("好好", ())]


def test_no_text_of_the_rows_is_among_what_travels(model: Path) -> None:
    rows = [Row(f"房间{'很大' * (4 + n % 7)}", "01"[n % 2]) for n in range(40)]
    made = golden.make(
        golden.Models(model, model, model), "float32", rows, TASK, SILENT, wanted=GoldenRows(carry=False)
    )
    assert made.timing_texts_jsonl is not None
    travels = [
        json.loads(line) for raw in (made.golden_jsonl, made.timing_texts_jsonl) for line in raw.decode().splitlines()
    ]
    assert not {row["text"] for row in travels} & {row.text for row in rows}
    assert len(made.timing_texts_jsonl.splitlines()) == len(made.rows_jsonl.splitlines()) == 40
    assert set(golden.PROBES) <= {row.text for row in made.selftest_texts}
    assert {one.text for one in made.examples.wrong} <= {f"#{n}" for n in range(1, 41)}
    assert golden.make(golden.Models(model, model, model), "float32", rows, TASK, SILENT).timing_texts_jsonl is None


def test_as_many_rows_are_taken_as_the_recipe_sets(model: Path) -> None:
    rows = [Row("好" * (1 + n % 5), "01"[n % 2]) for n in range(40)]
    made = golden.make(golden.Models(model, model, model), "float32", rows, TASK, SILENT, wanted=GoldenRows(rows=10))
    assert len(made.rows_jsonl.splitlines()) == 10


def test_for_a_linear_model_alone_they_have_as_many_characters_of_its_n_grams(tmp_path: Path) -> None:
    grams = ["房间", "很", "x", "大，"]
    file = tmp_path / "linear.json"
    file.write_text(json.dumps(document(grams, [[1.0, -1.0]] * 4, [1.0] * 4, [0.0, 0.0])), encoding="utf-8")
    write_linear(file, ("bad", "good"), tmp_path / "model", multi_label=False)
    rows = [Row(text, "good") for text in TEXTS]
    made = placeholder_rows(rows, tmp_path / "model")
    assert [len(row.text) for row in made] == [len(text) for text in TEXTS]
    assert characters(made) == set("房间很")
    alone = golden.Models(tmp_path / "model", tmp_path / "model", None)
    assert b"float_label" not in golden.make(alone, "float32", rows, TASK, SILENT).rows_jsonl
