from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.bundle import golden
from edgepack.bundle.golden import placeholder_rows
from edgepack.errors import StageFailedError
from edgepack.export.linear_folder import write_linear
from edgepack.progress import SILENT
from edgepack.recipe.gates import GoldenRows
from edgepack_runtime.inference.linear import document
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

MakeModel = Callable[..., Path]
TASK = task_by_name(ONE_TEXT)
ROWS = [Row("房间很大服务不好也脏吵"[i % 11] * (1 + i % 7), "01"[i % 2]) for i in range(90)]


def lines(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.decode().splitlines()]


@pytest.fixture
def folders(tmp_path: Path, make_model: MakeModel) -> tuple[Path, Path]:
    return make_model(tmp_path / "int8", seed=1, precision="int8"), make_model(tmp_path / "float", seed=8)


def test_what_is_written_is_what_the_models_answer(folders: tuple[Path, Path]) -> None:
    shipped, reference = folders
    made = golden.make(golden.Models(shipped, reference, reference), "int8", ROWS, TASK, SILENT)
    model, float_model = Predictor(shipped), Predictor(reference)
    texts = lines(made.golden_jsonl)
    assert [Row(entry["text"], ()) for entry in texts] == list(made.selftest_texts)
    for entry in texts:
        assert np.allclose(entry["logits"], model.logits([entry["text"]])[0], atol=1e-6)
    rows = lines(made.rows_jsonl)
    assert [(row["text"], row["label"]) for row in rows] == [(row.text, row.label) for row in ROWS]
    assert [row["float_label"] for row in rows] == [float_model.predict(row["text"]).label for row in rows]
    assert {row["float_label"] for row in rows} == {"0", "1"}  # or the line above could not fail
    assert golden.make(golden.Models(*folders, folders[1]), "int8", ROWS, TASK, SILENT) == made


@pytest.mark.parametrize(
    "forge",
    [
        lambda said: {"logits": said.logits[1:]},
        lambda said: {"logits": [[1.0, 2.0, 3.0], *said.logits[1:]]},
        lambda said: {"logits": [[math.nan, 0.0], *said.logits[1:]]},
        lambda said: {"logits": ["x", *said.logits[1:]]},
        lambda said: {"answers": said.answers[1:]},
        lambda said: {"float_answers": None},
        lambda said: {"float_answers": said.answers[1:]},
        lambda said: {"float_answers": [*said.answers, "1"]},
        lambda said: {"probabilities": []},
    ],
)
def test_a_model_that_says_something_else_writes_no_golden_files(folders: tuple[Path, Path], forge: Any) -> None:
    """Where it runs, it may have taken over what answers."""

    def ask(job: Callable[..., golden.Said], kind: type[golden.Said]) -> golden.Said:
        said = job(progress=SILENT)
        return replace(said, **forge(said))

    models = golden.Models(folders[0], folders[1], folders[1])
    with pytest.raises(StageFailedError, match="the model's answers are not about these rows"):
        golden.make(models, "int8", ROWS, TASK, SILENT, ask=ask)


def test_tolerance_is_too_small_for_logits_that_were_made_up() -> None:
    made_up = np.float32([[9, -9], [-9, 9]])  # where the model gives 0
    assert golden.tolerance("int8", made_up, made_up + 1000) == pytest.approx(6)


def test_tolerance_is_a_share_of_the_spread_that_covers_quantization_and_rounding() -> None:
    reference = np.float32([[0, 0], [2, -3], [1, 1]])  # the second label's logits span 4
    assert golden.tolerance("float32", reference, reference) == pytest.approx(0.004)
    assert golden.tolerance("int8", reference, reference) == pytest.approx(0.08)
    assert golden.tolerance("int8", reference + np.float32(0.25), reference) == pytest.approx(0.5)
    assert golden.tolerance("float32", reference + 1, reference) == pytest.approx(0.004)
    assert golden.tolerance("float16", reference, reference) == pytest.approx(0.04)
    assert golden.tolerance("float16", reference + np.float32(0.0625), reference) == pytest.approx(0.5)
    same = np.ones((4, 2), np.float32)
    assert golden.tolerance("int8", same, same) == golden.tolerance("float32", same, same) == golden.LEAST_TOLERANCE


def test_golden_texts_span_the_lengths_and_hold_the_probes() -> None:
    rows = [Row("好" * length, "0") for length in range(1, 400)]
    texts = golden.golden_texts(rows)
    assert len(texts) == len(set(texts)) == golden.SAMPLED_TEXTS + len(golden.PROBES) - 1  # "好" is in both
    assert {"好", "好" * 399, *golden.PROBES} <= {row.text for row in texts}
    assert [row.text for row in golden.golden_texts([Row("好", "0")])[1:]] == list(golden.PROBES)[1:]
    pairs = golden.golden_texts([Row("好", "0", "坏")])
    assert pairs[0] == Row("好", (), "坏")
    assert {row.text for row in pairs[1:]} == {row.text_pair for row in pairs[1:]} == set(golden.PROBES)


labels = st.lists(st.sampled_from("abc"), min_size=1, max_size=60)


@given(labels, st.integers(1, 70))
def test_stratified_keeps_shares_and_order(found: list[str], limit: int) -> None:
    rows = [Row(str(index), label) for index, label in enumerate(found)]
    chosen = golden.stratified(rows, limit, TASK)
    assert len(chosen) == min(limit, len(rows))
    places = [int(row.text) for row in chosen]
    assert places == sorted(set(places))
    before, after = Counter(found), Counter(row.label for row in chosen)
    for label, count in before.items():
        assert abs(after[label] - count * len(chosen) / len(rows)) < 1


@pytest.mark.parametrize(("names", "each"), [(200, 4), (20, 2), (28, 1)])
def test_rows_of_many_labels_are_as_the_file_has_them(names: int, each: int) -> None:
    """Of 200 tags hardly any two rows have the same four. Each tag, and each number of tags, gets about its share."""
    draw = random.Random(1)
    tags = [f"tag{number:03}" for number in range(names)]
    rows = [Row(str(index), tuple(sorted(draw.sample(tags, draw.randint(0, 2 * each))))) for index in range(10_000)]
    chosen = golden.stratified(rows, 2000, TASK)
    assert len(chosen) == 2000
    for kinds in (lambda row: TASK.classes_of(row.label), lambda row: [len(TASK.classes_of(row.label))]):
        before, after = (Counter(kind for row in some for kind in kinds(row)) for some in (rows, chosen))
        for kind, count in before.items():
            assert abs(after[kind] - count / 5) <= 4.5 * math.sqrt(count * 0.2 * 0.8), kind


def test_the_rarest_label_of_a_row_gets_its_share() -> None:
    rows = [Row(str(index), ("always", "rare") if index % 50 == 0 else ("always",)) for index in range(5000)]
    chosen = golden.stratified(rows, 1000, TASK)
    assert sum("rare" in TASK.classes_of(row.label) for row in chosen) == 20


@pytest.mark.parametrize("period", [2, 3, 4, 10])
@pytest.mark.parametrize("labels", [1, 2])
def test_patterns_of_a_file_are_not_those_of_its_golden_rows(period: int, labels: int) -> None:
    """Every second, third, ... row is of one kind, as copies with noise are, or rows of several sources in turns."""
    rows = [Row(str(index), "ab"[index // period % labels]) for index in range(1000 * period)]
    places = [int(row.text) for row in golden.stratified(rows, 1000, TASK)]
    for kind in range(period):
        found = sum(place % period == kind for place in places)
        assert abs(found - 1000 / period) <= 4.5 * math.sqrt(1000 / period)
    assert sum(place < 500 * period for place in places) == pytest.approx(500, abs=4.5 * math.sqrt(250))
    assert golden.stratified(rows, 1000, TASK) == golden.stratified(rows, 1000, TASK)


@pytest.mark.parametrize(("labels", "each", "flagged"), [(100, 200, 4), (100, 200, 6), (2000, 2, 1), (50, 100, 5)])
@pytest.mark.parametrize("parents", [True, False])
def test_a_flag_beside_labels_of_one_size_gets_its_share(labels: int, each: int, flagged: int, parents: bool) -> None:
    """Sorted by all of their labels, those of a flag come last of each label, where no even distance may fall."""
    rows = [
        Row(
            f"{label} {number}",
            (f"leaf{label:04}", *([f"of{label // 10:03}"] * parents), *(["flag"] * (number < flagged))),
        )
        for label in range(labels)
        for number in range(each)
    ]
    chosen = golden.stratified(rows, len(rows) // 10 if each > 2 else len(rows) // 2, TASK)
    expected = len(chosen) * flagged / each
    assert abs(sum("flag" in TASK.classes_of(row.label) for row in chosen) - expected) <= 4.5 * math.sqrt(expected)


@pytest.mark.parametrize("each", [1, 5, 10])
def test_labels_that_come_in_pairs_get_their_share(each: int) -> None:
    """By the alphabet, every second label is a bad one, as many of each: one even distance covers a pair of them."""
    pairs = 4000 // (2 * each)
    names = [f"{pair:04}/{kind}" for pair in range(pairs) for kind in ("bad", "good")]
    rows = [Row(f"{name} {number}", (name,)) for name in names for number in range(each)]
    chosen = golden.stratified(rows, pairs, TASK)
    bad = sum(row.label[0].endswith("bad") for row in chosen)
    assert abs(bad - pairs / 2) <= 4.5 * math.sqrt(pairs / 4)


NO_TOKEN = "\ufffd"  # of which a tokenizer makes nothing
TEXTS = ["房间很大", "服务", "wifi 很好!", NO_TOKEN, "差" * 700, f"\u200b{NO_TOKEN}\n"]


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
        max(3, predictor.text_model.tokens(text))
        for text in TEXTS  # one and [CLS] and [SEP]: none is empty
    ]
    assert len(made[4].text) == 700  # cut by the model, not here
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert characters(made) <= set(vocabulary)
    assert not set(TEXTS) & {row.text for row in made}
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
    write_linear(file, task_by_name(ONE_TEXT), ("bad", "good"), tmp_path / "model")
    rows = [Row(text, "good") for text in TEXTS]
    made = placeholder_rows(rows, tmp_path / "model")
    assert [len(row.text) for row in made] == [len(text) for text in TEXTS]
    assert characters(made) == set("房间很")
    alone = golden.Models(tmp_path / "model", tmp_path / "model", None)
    assert b"float_label" not in golden.make(alone, "float32", rows, TASK, SILENT).rows_jsonl
