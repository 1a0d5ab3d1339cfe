"""The linear model on characters: its features, its arithmetic, and damaged files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.bundle.model_config import LINEAR_NAME
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference import linear
from edgepack_runtime.inference.linear import LinearModel

GRAMS = ["好", "差", "很", "很好", "不", "不好"]
CHARACTERS = "".join(sorted(set("".join(GRAMS)))) + "x"
finite = st.floats(-50, 50).map(lambda value: round(value, 3))


def test_features_are_characters_and_pairs_in_one_case_and_width() -> None:
    assert linear.ngrams("Ａb\u3000好") == {"a", "b", " ", "好", "ab", "b ", " 好"}
    assert linear.ngrams("好好好") == {"好", "好好"}
    assert linear.ngrams("") == set()


def test_features_of_a_pair_are_what_both_have_what_one_has_and_how_much() -> None:
    found = linear.features(("好吃", "好看吗"))
    assert found == {
        *("=好", "~吃", "~好吃", "~看", "~吗", "~好看", "~看吗"),
        *("j1:3", "o1:5", "j2:0", "o2:0"),  # 1 of 4 and 1 of 2 characters, none of the pairs
    }
    assert linear.features(("", "")) == {"j1:0", "o1:0", "j2:0", "o2:0"}
    assert linear.features(("好的", "好的")) >= {"j1:10", "o1:10", "j2:10", "o2:10"}
    assert linear.features(("a", "ab")) == linear.features(("ab", "a"))


@given(st.text(), st.characters(codec="utf-8"))
def test_what_stands_beyond_the_longest_text_is_not_read(text: str, last: str) -> None:
    whole = (text + "好") * (linear.MOST_CHARACTERS // (len(text) + 1) + 1)
    assert linear.ngrams(whole + last) == linear.ngrams(whole[: linear.MOST_CHARACTERS])


@given(
    st.lists(st.tuples(finite, finite, finite), min_size=len(GRAMS), max_size=len(GRAMS)),
    st.lists(st.floats(1, 10), min_size=len(GRAMS), max_size=len(GRAMS)),
    st.tuples(finite, finite, finite),
    st.text(CHARACTERS, max_size=12),
)
def test_outputs_are_those_of_the_formula(weights: Any, idf: list[float], bias: Any, text: str) -> None:
    model = LinearModel(linear.document(GRAMS, weights, idf, bias))
    known = [place for place, gram in enumerate(GRAMS) if gram in linear.ngrams(text)]
    length = math.sqrt(sum(idf[place] ** 2 for place in known)) or 1.0
    for k, found in enumerate(model.logits(text)):
        step = max(abs(row[k]) for row in weights) / 127
        meant = sum(weights[place][k] for place in known) / length + bias[k]
        # A weight is off by half a step, idf^2 by half of 1/255 of the largest, or by what the smallest lacks.
        off = 0.55 * step * len(known) / length + 0.5 * abs(meant - bias[k]) * 1.2
        assert abs(found - meant) <= off + 1e-9


def test_the_sums_of_the_longest_text_are_exact() -> None:
    grams = [chr(0x4E00 + place) for place in range(linear.MOST_CHARACTERS)]
    model = LinearModel(linear.document(grams, [(1.0, -1.0)] * len(grams), [1.0] * len(grams), (0.0, 0.0)))
    root = math.sqrt(len(grams))
    assert model.logits("".join(grams)) == pytest.approx([root, -root])


def test_an_unknown_text_has_the_bias() -> None:
    model = LinearModel(linear.document(GRAMS, [(1.0, 2.0)] * 6, [1.0] * 6, (0.25, -0.5)))
    assert model.logits("xyz") == model.logits("") == [0.25, -0.5]


@pytest.mark.parametrize(
    "change",
    [
        {"scale": [1.0]}, {"bias": [0.0, float("nan")]}, {"idf_scale": 0}, {"idf_scale": float("inf")},
        {"ngrams": []}, {"ngrams": ["好"] * 6}, {"ngrams": [["好"]] * 6},
        {"weights": "AAAA"}, {"weights": "好"}, {"weights": None},
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    good = linear.document(GRAMS, [(1.0, 2.0)] * 6, [1.0] * 6, (0.0, 0.0))
    file = tmp_path / LINEAR_NAME
    file.write_text(json.dumps(good))
    assert LinearModel.load(file).logits("好")[1] > 0
    file.write_text(json.dumps({**good, **change}))
    with pytest.raises(BundleInvalidError, match=r"linear\.json cannot be used"):
        LinearModel.load(file)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b"null"])
def test_what_is_no_model_is_refused(tmp_path: Path, raw: bytes) -> None:
    (file := tmp_path / LINEAR_NAME).write_bytes(raw)
    with pytest.raises(BundleInvalidError):
        LinearModel.load(file)
    with pytest.raises(BundleInvalidError):
        LinearModel.load(tmp_path / "none")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"scale": [1' + "0" * 400 + "]}"])
def test_a_file_that_no_reader_can_hold_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "linear.json").write_text(text)
    with pytest.raises(BundleInvalidError, match="cannot be used"):
        linear.LinearModel.load(tmp_path / "linear.json")
