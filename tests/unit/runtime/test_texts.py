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


# --- pairs ----------------------------------------------------------------------------------------------------

PAIRS = [("如何还款", "怎么还款"), ("  a ", "b\u2028")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "如何还款\t怎么还款\n  a \tb\u2028"),
        ("a.tsv", "text_pair\tid\ttext\n怎么还款\t1\t如何还款\nb\u2028\t2\t  a \n"),
        ("a.csv", "text,text_pair\r\n如何还款,怎么还款\r\n  a ,b\u2028\r\n"),
        ("a.jsonl", '{"text": "如何还款", "text_pair": "怎么还款"}\n{"text_pair": "b\\u2028", "text": "  a "}\n'),
    ],
)
def test_all_forms_give_the_same_pairs(tmp_path: Path, name: str, content: str) -> None:
    assert texts.read_texts(file(tmp_path, name, content), pair_column="text_pair") == PAIRS


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", "a\tb\nc\n", "line 2 of a.txt is no pair of texts"),
        ("a.txt", "a\tb\tc\n", "line 1 of a.txt is no pair of texts"),
        ("a.txt", "a\tb\n\n", "line 2 of a.txt is empty"),
        ("a.txt", "a\t \n", "text 2 of line 1 of a.txt is empty"),
        ("a.txt", "\tb\n", "text 1 of line 1 of a.txt is empty"),
        ("a.tsv", "text\tother\n1\t2\n", "a.tsv has no column `text_pair`"),
        ("a.tsv", "text_pair\tother\n1\t2\n", "a.tsv has no column `text`"),
        ("a.csv", "text,text_pair\na,\n", "text 2 of line 2 of a.csv is empty"),
        ("a.csv", "text,text_pair\n", "a.csv holds no text"),
        ("a.jsonl", '{"text": "a"}\n', "no JSON object with a key `text` and a key `text_pair`"),
        ("a.jsonl", '{"text": "a", "text_pair": 1}\n', "`text_pair` in line 1 of a.jsonl is not a text"),
    ],
)
def test_a_bad_pair_is_named(tmp_path: Path, name: str, content: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        texts.read_texts(file(tmp_path, name, content), pair_column="text_pair")
    assert named in caught.value.what


def test_the_option_for_a_missing_column_is_told(tmp_path: Path) -> None:
    path = file(tmp_path, "a.tsv", "q1\tq2\n1\t2\n")
    for columns, option in ((("text", "q2"), "--column"), (("q1", "text_pair"), "--pair-column")):
        with pytest.raises(UsageError) as caught:
            texts.read_texts(path, *columns)
        assert caught.value.fix.endswith(f": {option} NAME")
    assert texts.read_texts(path, "q1", "q2") == [("1", "2")]


def test_a_pair_on_the_command_line_is_two_texts() -> None:
    assert texts.one_pair(["a", "b"]) == ("a", "b")
    for wrong, why in (["a"], "one text was given"), (["a", "b", "c"], "3 texts were given"):
        with pytest.raises(UsageError, match="takes pairs of texts") as caught:
            texts.one_pair(wrong)
        assert caught.value.why == why


def test_pairs_on_a_stream_are_answered_line_by_line() -> None:
    lines = texts.from_stream(io.BytesIO("\ufeffa\tb\r\nc d\te\nf\n".encode()), "standard input", pairs=True)
    assert [next(lines), next(lines)] == [("a", "b"), ("c d", "e")]
    with pytest.raises(UsageError, match="line 3 of standard input is no pair of texts"):
        next(lines)


def written(suffix: str, items: list[texts.Item], found: list[dict[str, Any]], *labels: str) -> str:
    out = io.StringIO()
    texts.write_predictions(out, suffix, items, found, labels)
    return out.getvalue()


def test_tables_of_pairs_have_a_column_for_each_text() -> None:
    found = [{"label": "1", "score": 0.5}]
    assert written(".csv", [("a", "b,c")], found) == 'text,text_pair,label,score\na,"b,c",1,0.5\n'
    assert written(".tsv", [("a", "b")], found) == "text\ttext_pair\tlabel\tscore\na\tb\t1\t0.5\n"


def test_what_is_no_text_stands_in_a_table_as_json() -> None:
    found = [{"labels": ["x", "好"], "scores": {"x": 0.9, "好": 0.5}}, {"labels": [], "scores": {}}]
    assert written(".tsv", ["a", "b"], found) == (
        'text\tlabels\tscores\na\t["x", "好"]\t{"x": 0.9, "好": 0.5}\nb\t[]\t{}\n'
    )
    spans = [{"spans": [{"start": 0, "end": 1, "label": "x", "score": 0.5, "text": "\t"}]}]
    line = '[{"start": 0, "end": 1, "label": "x", "score": 0.5, "text": "\\t"}]'
    assert written(".tsv", ["a"], spans) == f"text\tspans\na\t{line}\n"


def test_with_scores_each_label_has_a_column() -> None:
    found = [{"labels": ["x"], "scores": {"x": 0.9, "y": 0.1}}]
    assert written(".csv", ["a"], found, "x", "y") == 'text,labels,score_x,score_y\na,"[""x""]",0.9,0.1\n'


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    found = [{"spans": [{"start": 0, "end": 2, "label": "x", "score": 0.5, "text": "\ud83d好"}]}]
    with texts.replacing(tmp_path / "a.jsonl") as out:
        texts.write_predictions(out, ".jsonl", ["\ud83d好"], found)
    assert json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8")) == found[0]


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
                texts.write_predictions(out, path.suffix, lines, predictions, ("好", "差"))
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


@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 3), (10, 3), (2000, 200), (201, 200)])
def test_texts_are_drawn_evenly(count: int, most: int) -> None:
    given = [str(number) for number in range(count)]
    drawn = texts.evenly(given, most)
    assert len(drawn) == len(set(drawn)) == min(count, most)
    assert drawn == sorted(drawn, key=int)
    assert int(drawn[-1]) >= count - count / most - 1
