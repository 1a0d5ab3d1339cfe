"""Texts in, predictions out: every text keeps its line, and nothing is skipped."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepack_runtime import texts
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError

# A line of a file: no line end and no NUL (Python 3.10's csv module refuses it), and not only white space.
LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), min_size=1, max_size=12)
LINES = LINES.filter(lambda line: bool(line.strip()))


def file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "很好\n  差 \n"),
        ("a.txt", "\ufeff很好\r\n  差 "),
        ("a.tsv", "id\ttext\n1\t很好\n2\t  差 \n"),
        ("a.csv", '\ufefftext,id\n很好,1\n"  差 ",2\n'),
        ("a.jsonl", '{"text": "很好", "id": 1}\n{"text": "  差 "}\n'),
    ],
)
def test_all_forms_give_the_same_texts(tmp_path: Path, name: str, content: str) -> None:
    assert texts.read_texts(file(tmp_path, name, content)) == ["很好", "  差 "]


def test_a_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = file(tmp_path, "a.tsv", 'text\tid\n"好\t1\n说"好"\t2\n')
    assert texts.read_texts(path) == ['"好', '说"好"']


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    assert texts.read_texts(file(tmp_path, "a.txt", "a\u2028b\x85c\x0cd\ne")) == ["a\u2028b\x85c\x0cd", "e"]


def test_long_fields_are_read(tmp_path: Path) -> None:
    long = "好" * 200_000
    assert texts.read_texts(file(tmp_path, "a.csv", f"text\n{long}\n")) == [long]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", "好\n\n差\n", "line 2 of a.txt is empty"),
        ("a.txt", "好\n \u3000\n", "line 2 of a.txt is empty"),
        ("a.txt", b"\xe5\xa5\xbd\n\xff\n", "line 2 of a.txt is not UTF-8"),
        ("a.txt", "", "a.txt holds no text"),
        ("a.tsv", "text\n好\n\n", "line 3 of a.tsv has 0 fields"),
        ("a.tsv", "id\n1\n", "no column `text`"),
        ("a.tsv", "text\ttext\n1\t2\n", "no column `text`"),
        ("a.tsv", "text\tid\n好\n", "line 2 of a.tsv has 1 fields; the header has 2"),
        ("a.csv", "text,id\n,1\n", "line 2 of a.csv is empty"),
        ("a.csv", 'text\n"好\n', "a.csv is not a table"),
        ("a.csv", b"text\n\xff\n", "a.csv is not UTF-8"),
        ("a.csv", "", "no column `text`"),
        ("a.csv", "text\n", "a.csv holds no text"),
        ("a.jsonl", '{"text": "好"}\n{"text": 3}\n', "`text` in line 2 of a.jsonl is not a text"),
        ("a.jsonl", "[1]\n", "line 1 of a.jsonl is no JSON object"),
        ("a.jsonl", '{"text": "好"}\n{\n', "line 2 of a.jsonl is no JSON object"),
        ("a.xls", "", "no known ending"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, name: str, content: str | bytes, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        texts.read_texts(file(tmp_path, name, content))
    assert named in caught.value.what


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        texts.read_texts(tmp_path / "a.txt")


def test_arguments_are_utf8_whatever_the_locale() -> None:
    assert texts.from_arguments([os.fsdecode("很好".encode())]) == ["很好"]
    with pytest.raises(UsageError, match="text 2 is not UTF-8"):
        texts.from_arguments(["a", "\udcff"])
    with pytest.raises(UsageError, match="text 2 is empty"):
        texts.from_arguments(["a", " "])


def test_a_stream_is_answered_line_by_line() -> None:
    class Endless(io.RawIOBase):
        def readline(self, size: int | None = -1) -> bytes:
            return "好\n".encode()

    stream = texts.from_stream(Endless(), "standard input")  # type: ignore[arg-type]
    assert [next(stream), next(stream)] == ["好", "好"]


def test_a_line_without_end_is_no_text() -> None:
    class Zeros(io.RawIOBase):
        def readline(self, size: int | None = -1) -> bytes:
            assert size is not None and 0 < size <= texts.MAX_LINE_BYTES + 1
            return b"\0" * size

    with pytest.raises(UsageError, match="line 1 of /dev/zero is longer than 16 MiB"):
        next(texts.from_stream(Zeros(), "/dev/zero"))  # type: ignore[arg-type]


@given(st.lists(LINES, min_size=1, max_size=5))
@settings(deadline=None)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    predictions: list[dict[str, Any]] = [{"label": "好", "score": 0.5, "scores": {"好": 0.5, "差": 0.5}} for _ in lines]
    folder = tmp_path_factory.mktemp("out")
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.txt"):
        path = folder / name
        try:
            with texts.replacing(path) as out:
                texts.write_predictions(out, path.suffix, lines, predictions)
        except UsageError:
            assert name == "a.tsv"
            assert any("\t" in line for line in lines)
            assert not path.exists()
            continue
        if name in ("a.csv", "a.tsv"):
            assert texts.read_texts(path) == lines
        else:
            assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == predictions
            assert "好" in path.read_text(encoding="utf-8")
    with (folder / "a.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert rows[0] == {"text": lines[0], "label": "好", "score": "0.5", "score_好": "0.5", "score_差": "0.5"}


def test_half_an_answer_never_replaces_a_file(tmp_path: Path) -> None:
    path = file(tmp_path, "out.jsonl", "old")
    with pytest.raises(RuntimeError), texts.replacing(path) as out:
        out.write("half")
        raise RuntimeError("the model broke down")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_and_unknown_outputs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no known ending"), texts.replacing(tmp_path / "out.xlsx"):
        raise AssertionError
    with pytest.raises(EnvironmentUnfitError, match="No such file"), texts.replacing(tmp_path / "none" / "out.csv"):
        raise AssertionError
