"""What artifacts tell beside their fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgepack.artifacts import DataArtifact, mebibytes


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["很好"], "很好"),
        (['说"好"', "$HOME 好", "`ls`", "a\\b", "好!", "两\n行", "很好"], "很好"),
        (["很" * 100], "很" * 24),
        (['"'], "你好"),
    ],
)
def test_an_example_can_be_typed_between_double_quotes(tmp_path: Path, texts: list[str], expected: str) -> None:
    rows = "".join(json.dumps({"text": text, "label": "x"}) + "\n" for text in texts)
    (tmp_path / "test.jsonl").write_text(rows, encoding="utf-8")
    data = DataArtifact(tmp_path, ("x", "y"), {"test": len(texts)}, "x", ())
    assert data.example() == expected


def test_mebibytes() -> None:
    assert mebibytes(5 * 2**20 + 2**19) == 5.5
