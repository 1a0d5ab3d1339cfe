"""Golden examples of models with a handler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import write_imported_release

from edgepack_runtime.bundle import golden, handler_examples
from edgepack_runtime.bundle.handler_examples import GoldenExample
from edgepack_runtime.bundle.model_config import ModelConfig, load
from edgepack_runtime.errors import BundleInvalidError

SCORES = {"score": 1.0, "float_score": 0.5}


def release(folder: Path, item: str, *rows: dict[str, Any], **options: Any) -> tuple[Path, ModelConfig]:
    found, _ = write_imported_release(
        folder / "release", [{"expected": 3, **SCORES, **row} for row in rows], item=item, **options
    )
    return found, load(found / golden.MODEL_FOLDER)


def test_items_are_read_with_their_scores(tmp_path: Path) -> None:
    found, config = release(tmp_path, "json", {"item": {"b": [1]}}, {"item": None, "expected": None})
    assert handler_examples.read_examples(found, config) == [
        GoldenExample({"b": [1]}, 3, 1.0, 0.5),
        GoldenExample(None, None, 1.0, 0.5),
    ]
    assert handler_examples.timing_items(found, config) == [{"b": [1]}, None]
    assert handler_examples.example_argument(found, config) == '{"b": [1]}'


def test_texts_are_read(tmp_path: Path) -> None:
    found, config = release(tmp_path, "text", {"item": "很好"}, {"item": "a"})
    assert [one.item for one in handler_examples.read_examples(found, config)] == ["很好", "a"]
    assert handler_examples.example_argument(found, config) == "很好"


def test_files_are_read_as_bytes(tmp_path: Path) -> None:
    found, config = release(tmp_path, "file", {"file": "golden/files/a.bin"}, files={"a.bin": b"\0\xff"})
    assert handler_examples.read_examples(found, config) == [GoldenExample(b"\0\xff", 3, 1.0, 0.5)]
    assert Path(handler_examples.example_argument(found, config)).read_bytes() == b"\0\xff"


def test_the_self_test_takes_the_first_examples(tmp_path: Path) -> None:
    found, config = release(tmp_path, "json", *({"item": number} for number in range(40)))
    assert handler_examples.selftest_items(found, config) == list(range(handler_examples.SELFTEST_EXAMPLES))


@pytest.mark.parametrize(
    "path",
    [
        "../x", "/etc/passwd", "golden/files/../../x", "golden/files", "golden/files/", "golden/rows.jsonl", "a.bin",
        "golden/files/./a.bin", "golden//files/a.bin", "golden/files/a.bin\0", "golden/filesx/a.bin",
        "golden\\files\\a.bin", "", 3, None, ["golden/files/a.bin"],
    ],
)  # fmt: skip
def test_a_file_lies_below_the_folder_of_files(tmp_path: Path, path: object) -> None:
    found, config = release(tmp_path, "file", {"file": path}, files={"a.bin": b""})
    with pytest.raises(BundleInvalidError, match=r"line 1 of golden/rows\.jsonl") as caught:
        handler_examples.read_examples(found, config)
    assert "the path of a file below golden/files" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    found, config = release(tmp_path, "file", {"file": "golden/files/b.bin"})
    with pytest.raises(BundleInvalidError, match=r"golden/files/b\.bin is not valid"):
        handler_examples.read_examples(found, config)


@pytest.mark.parametrize(
    ("item", "row", "words"),
    [
        ("json", {"item": 1, "score": 1.5}, "numbers from 0 to 1"),
        ("json", {"item": 1, "float_score": None}, "numbers from 0 to 1"),
        ("json", {"item": 1, "score": True}, "numbers from 0 to 1"),
        ("json", {"item": 1, "score": float("nan")}, "numbers from 0 to 1"),
        ("text", {"item": 1}, "its item should be a text"),
        ("text", {"file": "golden/files/a"}, "an object with the keys expected, float_score, item, score"),
        ("file", {"item": "a"}, "an object with the keys expected, file, float_score, score"),
        ("json", {"item": 1, "more": 1}, "an object with the keys"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(tmp_path: Path, item: str, row: dict[str, Any], words: str) -> None:
    found, config = release(tmp_path, item, row)
    with pytest.raises(BundleInvalidError, match=r"line 1 of golden/rows\.jsonl") as caught:
        handler_examples.read_examples(found, config)
    assert words in str(caught.value)


def test_equal_values_have_one_canonical_text() -> None:
    assert handler_examples.canonical(json.loads('{"b": 1, "a": "好"}')) == handler_examples.canonical(
        {"a": "好", "b": 1}
    )
