"""The label of a cell: on a device as in training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgepack.recipe.finding_log import FindingLog
from edgepack.tasks.cells import label_of
from edgepack_runtime.rows.label_cells import label_in


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        (" 好 ", "好"),
        ("3", "3"),
        ("[3]", "3"),
        ('["好"]', "好"),
        ("['好']", "好"),
        ('{"choices": ["好"]}', "好"),
        ('{"rating": 4}', "4"),
        ('{"taxonomy": [["财经", "股票"]]}', "财经/股票"),
        ("none", "none"),
        ("nan", ""),
        ("\\N", ""),
        ("-", ""),
        ("\u200b", ""),
        ("[]", ""),
        ('["好", "坏"]', ""),
        ("[3.5]", ""),
    ],
)
def test_a_label_is_read_as_in_training(cell: str, label: str) -> None:
    assert label_in(cell) == label
    assert (label_of(1, cell, FindingLog(Path("a.csv"))) or "") == label


@pytest.mark.parametrize("cell", ["[" * 5000, json.dumps(["\ud800"]), '{"choices":', "['a\\' b']"])
def test_a_cell_that_is_no_json_is_a_label_as_it_is(cell: str) -> None:
    assert label_in(cell) == cell
