from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import TAGS, write_lines

from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle.golden import GoldenRow, GoldenText
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.util.spans import Span

ONE = ModelConfig("text-classification", ("bad", "good"), 16, "int8")
PAIRS = dataclasses.replace(ONE, task="text-pair-classification")
SEVERAL = dataclasses.replace(ONE, multi_label=True)
TOKENS = dataclasses.replace(ONE, task="token-classification", labels=TAGS)


def rows(folder: Path, config: ModelConfig, *lines: Any) -> list[GoldenRow]:
    (folder / "golden").mkdir()
    write_lines(folder / golden.ROWS_FILE, lines)
    return golden.read_rows(folder, config)


def texts(folder: Path, config: ModelConfig, *lines: Any) -> list[GoldenText]:
    (folder / "golden").mkdir()
    write_lines(folder / golden.GOLDEN_FILE, lines)
    return golden.read_golden(folder, config)


BEFORE = {"text": "好", "label": "good", "float_label": "good", "baseline_label": "bad"}  # with an earlier release


@pytest.mark.parametrize(
    ("config", "line", "expected"),
    [
        (ONE, {"text": "好", "label": "good", "float_label": "bad"}, GoldenRow("好", "good", "bad")),
        (ONE, {"text": "好", "label": "good"}, GoldenRow("好", "good")),  # of a linear model alone
        (ONE, BEFORE, GoldenRow("好", "good", "good", None, "bad")),
        (
            PAIRS, {"text": "好", "text_pair": "差", "label": "good", "float_label": "bad"},
            GoldenRow("好", "good", "bad", "差"),
        ),
        (SEVERAL, {"text": "好", "labels": ["good", "bad"], "float_labels": []}, GoldenRow("好", ("bad", "good"), ())),
        (
            TOKENS, {"text": "很好店", "spans": [[2, 3, "place"], [0, 2, "name"]], "float_spans": []},
            GoldenRow("很好店", (Span(0, 2, "name"), Span(2, 3, "place")), ()),
        ),
    ],
)  # fmt: skip
def test_rows_are_read(tmp_path: Path, config: ModelConfig, line: dict[str, Any], expected: GoldenRow) -> None:
    [row] = rows(tmp_path, config, line)
    assert row == expected
    assert row.item == ((line["text"], "差") if config is PAIRS else line["text"])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", ["float_label", "baseline_label"])
def test_all_or_no_rows_have_answers_of_another_model(tmp_path: Path, key: str, first: bool) -> None:
    without = {name: value for name, value in BEFORE.items() if name != key}
    with pytest.raises(BundleInvalidError, match="line 2 of"):
        rows(tmp_path, ONE, *((BEFORE, without) if first else (without, BEFORE)))


def test_an_earlier_release_answers_with_the_same_labels(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalidError, match="line 1 of") as caught:
        rows(tmp_path, ONE, {**BEFORE, "baseline_label": "ugly"})
    assert caught.value.why == "label, float_label, baseline_label should be one of bad, good"


@pytest.mark.parametrize(
    ("config", "row"),
    [
        (ONE, {"text": "好", "label": "great", "float_label": "good"}),
        (ONE, {"text": "好", "label": "good", "float_label": ["good"]}),
        (ONE, {"text": None, "label": "good", "float_label": "good"}),
        (ONE, {"text": "好", "text_pair": "好", "label": "good", "float_label": "good"}),
        (ONE, {"text": "好", "labels": ["good"], "float_labels": ["good"]}),
        (PAIRS, {"text": "好", "label": "good", "float_label": "good"}),
        (PAIRS, {"text": "好", "text_pair": None, "label": "good", "float_label": "good"}),
        (SEVERAL, {"text": "好", "labels": "good", "float_labels": []}),
        (SEVERAL, {"text": "好", "labels": ["good", "good"], "float_labels": []}),
        (SEVERAL, {"text": "好", "labels": [], "float_labels": ["great"]}),
        (SEVERAL, {"text": "好", "labels": [["good"]], "float_labels": []}),
        (TOKENS, {"text": "好", "spans": [[0, 1, "B-place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[0, 1, "O"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[0, 2, "place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[0, 0, "place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[-1, 1, "place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[False, True, "place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[0, 1]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [[0, 1, "place"], [0, 1, "place"]], "float_spans": []}),
        (TOKENS, {"text": "好", "spans": [], "float_spans": {"start": 0}}),
        (TOKENS, {"text": "好", "spans": [[0, 1, ["place"]]], "float_spans": []}),
    ],
)
def test_invalid_rows_are_named(tmp_path: Path, config: ModelConfig, row: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError, match=r"line 1 of golden/rows\.jsonl") as caught:
        rows(tmp_path, config, row)
    assert "should" in caught.value.why


@pytest.mark.parametrize(
    ("config", "line", "expected"),
    [
        (ONE, {"text": "好", "logits": [1, 2.5]}, GoldenText("好", ((1.0, 2.5),))),
        (PAIRS, {"text": "好", "text_pair": "差", "logits": [1, 2]}, GoldenText("好", ((1.0, 2.0),), "差")),
        (TOKENS, {"text": "好", "logits": [[0, 1, 2, 3, 4]] * 3}, GoldenText("好", ((0, 1, 2, 3, 4),) * 3)),
    ],
)
def test_logits_are_read(tmp_path: Path, config: ModelConfig, line: dict[str, Any], expected: GoldenText) -> None:
    [text] = texts(tmp_path, config, line)
    assert text == expected
    assert text.item == (("好", "差") if config is PAIRS else "好")


@pytest.mark.parametrize(
    ("config", "row"),
    [
        (ONE, ["好", [1, 2]]),
        (ONE, {"text": "好"}),
        (ONE, {"text": 1, "logits": [1, 2]}),
        (ONE, {"text": "好", "logits": [1]}),
        (ONE, {"text": "好", "logits": [1, "2"]}),
        (ONE, {"text": "好", "logits": [1, float("nan")]}),
        (ONE, {"text": "好", "logits": [1, 2], "more": 1}),
        (ONE, {"text": "好", "logits": [[1, 2]]}),
        (ONE, {"text": "好", "logits": 1}),
        (ONE, {"text": "好", "text_pair": "好", "logits": [1, 2]}),
        (PAIRS, {"text": "好", "logits": [1, 2]}),
        (PAIRS, {"text": "好", "text_pair": 1, "logits": [1, 2]}),
        (TOKENS, {"text": "好", "logits": [0, 1, 2, 3, 4]}),
        (TOKENS, {"text": "好", "logits": []}),
        (TOKENS, {"text": "好", "logits": [[0, 1, 2, 3, 4], [0, 1, 2, 3]]}),
        (TOKENS, {"text": "好", "logits": [[0, 1, 2, 3, float("nan")]]}),
    ],
)
def test_invalid_logits_are_named(tmp_path: Path, config: ModelConfig, row: Any) -> None:
    with pytest.raises(BundleInvalidError, match=r"line 1 of golden/golden\.jsonl"):
        texts(tmp_path, config, row)
