"""Answers as lines of a file: each form keeps one line for each row."""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.batch import inputs
from edgepack_runtime.batch.inputs import InputRow
from edgepack_runtime.batch.outputs import Form
from edgepack_runtime.errors import UsageError
from edgepack_runtime.tasks.task import Output
from edgepack_runtime.util import texts

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), min_size=1, max_size=12)
LINES = LINES.filter(lambda line: not texts.is_unseen(line))


def written(suffix: str, items: Sequence[texts.Item], found: Sequence[Mapping[str, Any]], *labels: str) -> str:
    form = Form(suffix, outputs(*found[0]), labels, pairs=isinstance(items[0], tuple), raw_cells=True)
    return form.header() + "".join(map(form.answer, map(row, items), found))


def outputs(*names: str) -> list[Output]:
    return [Output(name, {}, by_label=name == "scores") for name in names]


def row(item: texts.Item | None, *fields: str) -> InputRow:
    return InputRow(1, item, None, 0, fields)


def test_tables_of_pairs_have_a_column_for_each_text() -> None:
    found = [{"label": "1", "score": 0.5}]
    assert written(".csv", [("a", "b,c")], found) == 'text,text_pair,label,score\na,"b,c",1,0.5\n'
    assert written(".tsv", [("a", "b")], found) == "text\ttext_pair\tlabel\tscore\na\tb\t1\t0.5\n"


def test_labels_and_spans_stand_in_a_table_as_json() -> None:
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
    assert written(".jsonl", ["a"], found, "x", "y") == '{"labels": ["x"], "scores": {"x": 0.9, "y": 0.1}}\n'


@pytest.mark.parametrize(
    ("suffix", "labels", "line"),
    [
        (".jsonl", (), '{"label": null, "score": null, "scores": null}\n'),
        (".txt", ("x", "y"), '{"label": null, "score": null, "scores": null}\n'),
        (".csv", ("x", "y"), ",,,,\n"),
        (".tsv", ("x", "y"), "\t\t\t\t\n"),
    ],
)
def test_a_row_without_an_answer_has_a_line_of_the_same_shape(suffix: str, labels: tuple[str, ...], line: str) -> None:
    form = Form(suffix, outputs("label", "score", "scores"), labels, pairs=False)
    assert form.missing(row(None)) == line
    found = form.answer(row("a"), {"label": "x", "score": 0.5, "scores": {"x": 0.5, "y": 0.5}})
    if suffix in (".csv", ".tsv"):
        mark = line[0]
        assert form.header().count(mark) == found.count(mark) == line.count(mark)
    else:
        assert list(json.loads(found)) == list(json.loads(line))


@given(st.lists(LINES, min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    predictions: list[dict[str, Any]] = [{"label": "好", "score": 0.5, "scores": {"好": 0.5, "差": 0.5}} for _ in lines]
    folder = tmp_path_factory.mktemp("out")
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.txt"):
        path = folder / name
        path.write_bytes(written(path.suffix, lines, predictions, "好", "差").encode())
        if name in ("a.csv", "a.tsv"):
            assert inputs.read_texts(path) == lines
        else:
            assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == predictions
            assert "好" in path.read_text(encoding="utf-8")
    with Path(folder / "a.csv").open(encoding="utf-8", newline="") as table:
        found = list(csv.DictReader(table))
    assert found[0] == {"text": lines[0], "label": "好", "score": "0.5", "score_好": "0.5", "score_差": "0.5"}


def test_a_table_keeps_the_columns_of_a_table() -> None:
    form = Form(".csv", outputs("label", "score"), (), pairs=False, columns=["id", "label", "text"], mark=True)
    assert form.header() == "\ufeffid,label,text,predicted_label,score\n"
    assert form.answer(row("好", "1", "x", "好"), {"label": "good", "score": 0.5}) == "1,x,好,good,0.5\n"
    assert form.missing(row(None, "2", "y", "")) == "2,y,,,\n"
    assert form.missing(row(None)) == ",,,,\n"
    form = Form(".tsv", outputs("label"), (), pairs=False, columns=["id", "text"])
    with pytest.raises(UsageError, match="cannot hold"):
        form.answer(row("好", "1\n2", "好"), {"label": "good"})
    assert form.missing(row("好", "1\n2", "好")) == "\t\t\n"
    assert form.missing(row("好", "1\t2", '"好"')) == '"1\t2"\t"""好"""\t\n'


RUN = ["=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\r1", "\uff1d1+1", '"=1+1"', " =1+1", "\ufeff=1+1"]


@pytest.mark.parametrize("cell", RUN)
def test_a_spreadsheet_runs_no_cell(cell: str) -> None:
    form = Form(".csv", outputs("label"), (), pairs=False, columns=["id", cell])
    assert next(csv.reader([form.header()])) == ["id", f"'{cell}", "label"]
    lines = [form.answer(row("x", cell, "x"), {"label": cell}), form.missing(row(None, cell, "x"))]
    assert [list(csv.reader([line])) for line in lines] == [[[f"'{cell}", "x", f"'{cell}"]], [[f"'{cell}", "x", ""]]]
    if "\r" not in cell:
        assert Form(".tsv", outputs("label"), (), pairs=False).answer(row(cell), {"label": "x"}) == f"'{cell}\tx\n"
    raw = Form(".csv", outputs("label"), (), pairs=False, raw_cells=True).answer(row(cell), {"label": "x"})
    assert next(csv.reader([raw])) == [cell, "x"]


def test_no_character_that_a_program_may_lose_hides_a_formula() -> None:
    """A control character (NUL), one without a width, or a blank; also behind a separator."""
    form = Form(".csv", outputs("label"), (), pairs=False)
    lost = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zs")]
    for character in [*lost, *"\u034f\u115f\u3164\ufe0f\uffa0\U000e0100"]:
        for before in ("", "a;"):
            line = form.answer(row(f"{before}{character}=1+1"), {"label": "x"})
            assert "'" in line.replace("\r", "").replace("\n", ""), hex(ord(character))


@pytest.mark.parametrize("mark", [";", "\t", ",", "\n", "\r\n"])
def test_a_spreadsheet_that_splits_elsewhere_runs_no_part_of_a_cell(mark: str) -> None:
    form = Form(".csv", outputs("label"), (), pairs=False)
    line = form.answer(row(f"good{mark}=1+1{mark}-5{mark}x{mark}+2+cmd{mark}-5{mark}*2"), {"label": "x"})
    number = "'-5" if mark in ";\t," else "-5"
    assert next(csv.reader([line])) == [f"good{mark}'=1+1{mark}-5{mark}x{mark}'+2+cmd{mark}{number}{mark}*2", "x"]


@pytest.mark.parametrize("before", ["-1", "+8613900000000", "-1,000.50", "a;-5"])
@pytest.mark.parametrize("cell", ["1+cmd|' /C calc'!A0;好", "*2", " *2", "e5+1", "%*2", '"1"&x', "\u20031+1"])
def test_a_number_and_the_next_cell_are_no_formula_together(before: str, cell: str) -> None:
    form = Form(".csv", outputs("label"), (), pairs=False, columns=["id", "n", "text"])
    assert next(csv.reader([form.answer(row("x", before, "7", cell), {"label": "x"})])) == [
        before,
        "7",
        f"'{cell}",
        "x",
    ]
    assert next(csv.reader([form.answer(row("x", "1", "7", cell), {"label": "x"})])) == ["1", "7", cell, "x"]


def test_a_cell_of_many_separators_is_read_once() -> None:
    line = Form(".csv", outputs("label"), (), pairs=False).answer(row("x" + "\t" * 100_000 + "=1"), {"label": "x"})
    assert next(csv.reader([line]))[0].endswith("\t'=1")


@pytest.mark.parametrize("cell", ["-1", "+8613900000000", "-1.5e-3", "-1,000.50", "+3%", "1=1", "", "a-b", "'=1"])
def test_numbers_and_texts_stay_what_they_are(cell: str) -> None:
    line = Form(".csv", outputs("label"), (), pairs=False, columns=["id", "text"]).answer(
        row("x", cell, "x"), {"label": "x"}
    )
    assert next(csv.reader([line])) == [cell, "x", "x"]
    assert Form(".jsonl", outputs("label"), (), pairs=False).answer(row("x"), {"label": "=1"}) == '{"label": "=1"}\n'


def test_a_carriage_return_ends_no_row() -> None:
    found = {"label": "good"}
    form = Form(".csv", outputs("label"), (), pairs=False)
    assert list(csv.reader([form.answer(row("好\r3"), found)])) == [["好\r3", "good"]]
    with pytest.raises(UsageError, match="cannot hold"):
        Form(".tsv", outputs("label"), (), pairs=False).answer(row("好\r3"), found)


def test_no_column_stands_twice() -> None:
    form = Form(".csv", outputs("label"), (), pairs=False, columns=["label", "predicted_label"])
    assert form.header() == "label,predicted_label,predicted_predicted_label\n"


@pytest.mark.parametrize("name", ["a\tb", "a\rb"])
def test_a_header_that_a_tsv_cannot_hold_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="cannot hold the names of the columns"):
        Form(".tsv", outputs("label"), (), pairs=False, columns=[name, "text"]).header()
    assert Form(".csv", outputs("label"), (), pairs=False, columns=[name, "text"]).header()


def test_a_line_has_the_same_bytes_on_every_python() -> None:
    """`csv.writer` refuses NUL before Python 3.11, and quotes it differently."""
    form = Form(".csv", outputs("label"), (), pairs=False, columns=["text", "n"])
    cells = ["好\x00坏,a", "1"], ["a\x00b", ""], ['a"b', " "], ["a\nb", "x;y"]
    found = [form.answer(row("a", *fields), {"label": "good"}) for fields in cells]
    assert found == ['"好\x00坏,a",1,good\n', "a\x00b,,good\n", '"a""b", ,good\n', '"a\nb",x;y,good\n']
