from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.bundle import golden
from edgepack.progress import SILENT
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
