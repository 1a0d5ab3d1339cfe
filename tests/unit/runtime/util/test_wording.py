"""One and many in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgepack
import edgepack_runtime
from edgepack_runtime.util.texts import counted


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 minutes"), (1, "1 minute"), (2, "2 minutes"), (1.0, "1 minute"), (0.5, "0.5 minutes"), (90.0, "90 minutes"),
     (1_234_567, "1234567 minutes")],
)  # fmt: skip
def test_one_and_many(number: float, words: str) -> None:
    assert counted(number, "minute") == words
    assert counted(number, "class", "classes") == words.replace("minutes", "classes").replace("minute", "class")


@pytest.mark.parametrize("package", [edgepack, edgepack_runtime])
def test_no_source_leaves_it_to_the_reader_whether_it_is_one_or_many(package: object) -> None:
    folder = Path(str(package.__file__)).parent  # type: ignore[attr-defined]
    files = [file for file in folder.rglob("*") if file.suffix in (".py", ".toml", ".jinja", ".html")]
    assert len(files) > 50
    assert [str(file) for file in files if re.search(r"\w\(e?s\)", file.read_text(encoding="utf-8"))] == []
