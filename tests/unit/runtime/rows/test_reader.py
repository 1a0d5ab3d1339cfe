"""Rows of every format: each keeps its line, and a bad one costs no other."""

from __future__ import annotations

import csv
import io
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.rows.formats import BY_SUFFIX
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import BROKEN_CSV, Rows, line_of_fields

BAD = object()


def opened(suffix: str, content: str | bytes) -> Rows:
    raw = content.encode() if isinstance(content, str) else content
    return Rows(io.BufferedReader(io.BytesIO(raw)), f"a{suffix}", BY_SUFFIX[suffix])


def read(suffix: str, content: str | bytes) -> list[tuple[int, Any]]:
    """For each row its line, and what it holds; BAD if it cannot be read."""
    rows = opened(suffix, content)
    found: Any = {".txt": rows.texts, ".jsonl": rows.records}.get(suffix, rows.cells)()
    return [(line, BAD if isinstance(row, RowError) else row) for line, row in found]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_fields_of_a_csv_may_be_quoted_whatever_its_separator(separator: str) -> None:
    content = f'id{separator}text\n1{separator}"好{separator} ""很""\n好"\n2{separator}差\n'
    assert read(".csv", content) == [(1, ["id", "text"]), (2, ["1", f'好{separator} "很"\n好']), (4, ["2", "差"])]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_line_for_excel_is_skipped_and_counted(suffix: str) -> None:
    found = read(suffix, 'sep=;\r\ntext;id\r\n"好\r\n很";1\r\n差;2\r\n')
    assert found == [(2, ["text", "id"]), (3, ["好\r\n很", "1"]), (5, ["差", "2"])]


def test_quotes_that_mysql_escapes_are_read() -> None:
    assert read(".csv", '"text","id"\n"他说\\"好\\"","1"\n') == [(1, ["text", "id"]), (2, ['他说"好"', "1"])]


def test_quotes_in_a_tsv_are_text() -> None:
    assert read(".tsv", 'a\t"b\n"c"\td\r\n') == [(1, ["a", '"b']), (2, ['"c"', "d"])]


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".jsonl"])
def test_a_stream_with_lines_of_old_macs_is_refused(suffix: str) -> None:
    assert read(suffix, '{"a":\t1}\r{"a":\t2}\r')[0] == (1, BAD)


def test_a_csv_of_an_old_mac_is_read() -> None:
    assert read(".csv", 'text,label\r好,1\r"a\rb",2') == [(1, ["text", "label"]), (2, ["好", "1"]), (3, ["a\rb", "2"])]


def test_a_row_without_an_end_is_not_held_in_memory() -> None:
    begun = 'a,b\n1,"x' + '","y\n' * 100_000  # a new quote opens at the end of each line
    rows = opened(".csv", begun)
    rows._most_line = 1000
    assert [(line, getattr(row, "kind", row)) for line, row in rows.cells()] == [(1, ["a", "b"]), (2, BROKEN_CSV)]
    assert rows.lines.number < 1000
    whole = "a,b\n" + '1,"x\ny"\n' * 1000
    assert len(read(".csv", whole)) == 1001


def test_nul_is_text_on_every_python() -> None:
    assert read(".csv", 'a\0,"\0b"\nc,d\n') == [(1, ["a\0", "\0b"]), (2, ["c", "d"])]


def test_a_bad_row_costs_no_other() -> None:
    content = b'text,id\n"a\nb",1\n"x"y,2\n\xff,3\n\n"c",4\n"e,7\n'
    assert read(".csv", content) == [
        (1, ["text", "id"]), (2, ["a\nb", "1"]), (4, BAD), (5, BAD), (6, []), (7, ["c", "4"]), (8, BAD),
    ]  # fmt: skip
    assert read(".tsv", b"a\tb\n\xff\n\nc\n") == [(1, ["a", "b"]), (2, BAD), (3, [""]), (4, ["c"])]
    assert read(".txt", b"a\n\n\xff\nb") == [(1, "a\n"), (2, "\n"), (3, BAD), (4, "b")]


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("{", False),
        ("null", False),
        ("3", False),
        ('{"a": 1, "a": 2}', False),
        ('{"a": {"b": 1, "b": 2}}', False),
        ('{"x": "\\":", "b" :2, "b" :3}', False),
        ("{" * 5000, False),
        ("[1]", True),
        ("a\tb", True),
    ],
)
def test_what_is_no_object_is_an_error(line: str, whole: bool) -> None:
    good = '{"t": "http://a:1", "n": {"u": ":"}, "o": 1, "p": 2, "q": 3}'
    assert read(".jsonl", f"{good}\n\n{line}\n{good}\n")[1:] == [(3, BAD), (4, json.loads(good))]
    [error] = [error for _, error in opened(".jsonl", line).records()]
    assert isinstance(error, RowError)
    assert (error.line, error.fatal) == (1, whole)


def test_blank_lines_of_json_are_counted() -> None:
    rows = opened(".jsonl", '\n{"a": 1}\n \u3000\n')
    assert [line for line, _ in rows.records()] == [2]
    assert rows.blank == 2


FIELDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=2, max_size=2)


@given(st.lists(FIELDS, min_size=1, max_size=8))
def test_a_csv_gives_back_what_was_written(rows: list[list[str]]) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([["text", "label"], *rows])
    assert [fields for _, fields in read(".csv", stream.getvalue())] == [["text", "label"], *rows]


MARKS = {".txt": b"\n", ".tsv": b"\n\t", ".csv": b'\n,"\r', ".jsonl": b'\n{}"[]:'}


@given(st.data(), st.sampled_from(sorted(MARKS)))
def test_any_content_can_be_read_on_from_every_row(data: st.DataObject, suffix: str) -> None:
    """Random bytes, with what has a meaning in that format among them."""
    marks = st.sampled_from([bytes([byte]) for byte in MARKS[suffix]])
    raw = b"".join(data.draw(st.lists(st.binary(max_size=6) | marks, max_size=30)))
    rows = opened(suffix, raw)
    found: Any = {".txt": rows.texts, ".jsonl": rows.records}.get(suffix, rows.cells)()
    read = [(line, rows.lines.offset) for line, _ in found]
    assert all(before[0] < after[0] and before[1] <= after[1] for before, after in itertools.pairwise(read))
    assert rows.lines.offset == len(raw)


LIST = '[{"t": "a"},\n\n {"t":\n "b"}, {"t": "c"}]'


@pytest.mark.parametrize("around", ["{}", "\ufeff {} ", '{{"data": {} }}', '{{"version": "1", "data": {} }}'])
def test_one_list_of_objects_has_a_row_for_each(around: str) -> None:
    content = around.format(LIST)
    rows = opened(".json", content)
    assert rows.is_list
    assert [*rows.records()] == [(1, {"t": "a"}), (3, {"t": "b"}), (4, {"t": "c"})]
    assert rows.lines.offset == len(content.encode())


@pytest.mark.parametrize(
    ("content", "errors"),
    [
        ('[{"t": 1}, 2, {"t": 3}]', [(2, "has an item of the list that is not an object", False)]),
        ('[{"t": 1},\n{"t": 1, "t": 2}]', [(2, "begins what is not JSON", True)]),
        ('[{"t": 1}', [(1, "lacks a comma between two items of a list", True)]),
        ('[{"t": 1} {"t": 2}]', [(1, "lacks a comma between two items of a list", True)]),
        ('[{"t": 1},]', [(2, "begins what is not JSON", True)]),
        ('[{"t": 1}]\n[{"t": 2}]\n', [(2, "holds more behind its list of objects", True)]),
        ('{"data": [{"t": 1}]} {"data": []}', [(2, "holds more behind its list of objects", True)]),
        ('{"data": [{"t": 1}], "data": [{"t": 2}]}', [(2, "holds more behind its list of objects", True)]),
        ('[{"t": "\xff"}]'.encode("latin-1"), [(1, "is not UTF-8", True)]),
    ],
)
def test_a_list_that_is_broken_is_an_error_in_its_place(content: Any, errors: list[tuple[int, str, bool]]) -> None:
    found = [(line, error) for line, error in opened(".json", content).records() if isinstance(error, RowError)]
    assert [(line, error.what, error.fatal) for line, error in found] == errors


def test_lines_of_objects_whose_first_has_a_list_are_lines() -> None:
    content = '{"data": [{"t": 1}], "t": "a"}\n{"t": "b"}\n'
    assert not opened(".jsonl", content).is_list
    assert [line for line, _ in read(".jsonl", content)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('1\t"他说""好"""', ["1", '他说"好"']),  # as pandas and spreadsheets write it
        ('1\t"a\tb"', ["1", "a\tb"]),
        ('1\t"好"', ["1", '"好"']),  # a text in quotes
        ('1\t""好""', ["1", '""好""']),
        ('1\t"好', ["1", '"好']),
        ('1\t"好\t很"\t"', ["1", '"好', '很"', '"']),  # more fields than the header, in either way
        ('1\t"a\0""b"', ["1", '"a\0""b"']),
        ('1\t"a""\rb"', ["1", 'a"\rb']),
        ('1\t"a""b\r2\tc', ["1", '"a""b\r2', "c"]),
    ],
)
def test_quotes_in_a_table_of_tabs_are_judged_by_their_line_alone(line: str, fields: list[str]) -> None:
    rows = [f"{number}\t好" for number in range(2, 9)]
    found = read(".tsv", "\n".join(["id\ttext", line, *rows, line]) + "\n")
    assert found == [(1, ["id", "text"]), (2, fields), *((n + 1, [f"{n}", "好"]) for n in range(2, 9)), (10, fields)]


@given(st.lists(st.lists(st.text('"\t好 :', max_size=6), min_size=2, max_size=2), min_size=1, max_size=6))
def test_fields_without_line_ends_survive_being_written_as_a_line(rows: list[list[str]]) -> None:
    lines = ["id\ttext", *(line_of_fields(fields, "\t") for fields in rows)]
    assert [fields for _, fields in read(".tsv", "\n".join(lines) + "\n")] == [["id", "text"], *rows]


def test_a_table_of_tabs_with_names_in_quotes_is_read_as_a_csv() -> None:
    content = '"id"\t"text"\n"1"\t"第一行\n第二行"\n"2"\t"差"\n'
    assert read(".tsv", content) == [(1, ["id", "text"]), (2, ["1", "第一行\n第二行"]), (4, ["2", "差"])]


def test_a_list_has_a_limit_of_bytes() -> None:
    raw = f"[{', '.join(['{}'] * 20)}]".encode()
    rows = Rows(io.BufferedReader(io.BytesIO(raw)), "a.json", BY_SUFFIX[".json"], most_line_bytes=4)
    [(_, error)] = rows.records()
    assert isinstance(error, RowError) and error.line is None and "jq -c" in error.fix
