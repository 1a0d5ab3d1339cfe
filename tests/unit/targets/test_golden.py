from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.progress import SILENT
from edgepack.targets import golden
from edgepack_runtime.predictor import Predictor

MakeModel = Callable[..., Path]
ROWS = [Row(f"房间{'很大' * (i % 7)}{'不好' * (i % 3)}", "01"[i % 2]) for i in range(90)]


def lines(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.decode().splitlines()]


@pytest.fixture
def folders(tmp_path: Path, make_model: MakeModel) -> tuple[Path, Path]:
    return make_model(tmp_path / "int8", seed=1, precision="int8"), make_model(tmp_path / "float", seed=2)


def test_what_is_written_is_what_the_models_say(folders: tuple[Path, Path]) -> None:
    shipped, reference = folders
    made = golden.make(shipped, reference, "int8", ROWS, SILENT)
    model, float_model = Predictor(shipped), Predictor(reference)
    texts = lines(made.golden_jsonl)
    assert [entry["text"] for entry in texts] == list(made.texts)
    for entry in texts:
        assert np.allclose(entry["logits"], model.logits([entry["text"]])[0], atol=1e-6)
    rows = lines(made.rows_jsonl)
    assert [(row["text"], row["label"]) for row in rows] == [(row.text, row.label) for row in ROWS]
    assert [row["float_label"] for row in rows] == [float_model.predict(row["text"]).label for row in rows]
    assert {row["float_label"] for row in rows} == {"0", "1"}  # or the line above could not fail


def test_the_same_models_give_the_same_bytes(folders: tuple[Path, Path]) -> None:
    assert golden.make(*folders, "int8", ROWS, SILENT) == golden.make(*folders, "int8", ROWS, SILENT)


def test_tolerance_covers_the_quantization_error_but_not_more() -> None:
    a, b = np.zeros((3, 2), np.float32), np.float32([[0, 0], [0.5, 0], [0, -0.1]])
    assert golden.tolerance("int8", a, b) == 1.0
    assert golden.tolerance("int8", a, a) == golden.LEAST_INT8_TOLERANCE
    assert golden.tolerance("float32", a, b) == golden.FLOAT_TOLERANCE


def test_golden_texts_span_the_lengths_and_hold_the_probes() -> None:
    rows = [Row("好" * length, "0") for length in range(1, 400)]
    texts = golden.golden_texts(rows)
    assert len(texts) == len(set(texts)) == golden.SAMPLED_TEXTS + len(golden.PROBES) - 1  # "好" is in both
    assert {"好", "好" * 399, *golden.PROBES} <= set(texts)
    assert golden.golden_texts([Row("好", "0")])[1:] == list(golden.PROBES)[1:]


labels = st.lists(st.sampled_from("abc"), min_size=1, max_size=60)


@given(labels, st.integers(1, 70))
def test_stratified_keeps_shares_and_order(found: list[str], limit: int) -> None:
    rows = [Row(str(index), label) for index, label in enumerate(found)]
    chosen = golden.stratified(rows, limit)
    assert len(chosen) == min(limit, len(rows))
    places = [int(row.text) for row in chosen]
    assert places == sorted(set(places))
    before, after = Counter(found), Counter(row.label for row in chosen)
    for label, count in before.items():
        assert abs(after[label] - count * len(chosen) / len(rows)) < 1


def test_stratified_draws_from_the_whole_file() -> None:
    rows = [Row(str(index), "a") for index in range(1000)]
    places = [int(row.text) for row in golden.stratified(rows, 10)]
    assert places == [0, 111, 222, 333, 444, 555, 666, 777, 888, 999]
