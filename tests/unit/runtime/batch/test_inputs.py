"""Rows in, one by one: every row keeps its line, and a bad one costs no other."""

from __future__ import annotations

import codecs
import io
import itertools
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.batch import inputs
from edgepack_runtime.errors import UsageError
from edgepack_runtime.messages import render
from edgepack_runtime.rows.lines import SAVE_AS_CSV
from edgepack_runtime.util import texts

# A line of a file: no line end and no NUL (Python 3.10's csv module refuses it), and not only what shows nothing.
LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), min_size=1, max_size=12)
LINES = LINES.filter(lambda line: not texts.is_unseen(line))


def file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines_of(stream: io.RawIOBase | io.BytesIO, name: str, *columns: str) -> Iterator[texts.Item]:
    return inputs.items(inputs.Source(io.BufferedReader(stream), name, ".txt", columns))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "很好\n  差 \n"),
        ("a.txt", "\ufeff很好\r\n  差 "),
        ("a.tsv", "id\ttext\n1\t很好\n2\t  差 \n"),
        ("a.csv", '\ufefftext,id\n很好,1\n"  差 ",2\n'),
        ("a.csv", "\n \ntext;id\n很好;1\n  差 ;2\n"),
        ("a.jsonl", '{"text": "很好", "id": 1}\n{"text": "  差 "}\n'),
    ],
)
def test_all_forms_give_the_same_texts(tmp_path: Path, name: str, content: str) -> None:
    assert inputs.read_texts(file(tmp_path, name, content)) == ["很好", "  差 "]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", b"\xe5\xa5\xbd\n\xff\n", "line 2 of a.txt is not UTF-8"),
        ("a.txt", "", "a.txt holds no text"),
        ("a.tsv", "id\n1\n", "no column `text`"),
        ("a.tsv", "text\ttext\n1\t2\n", "more than one column `text`"),
        (
            "a.csv",
            "text,id\n" + '"好\n' + "好\n" * 8,
            "line 2 of a.csv, with the lines up to 10, is not a row of a table",
        ),
        ("a.tsv", "text\tid\n好\n", "line 2 of a.tsv has 1 field, and the header has 2"),
        ("a.csv", "text,id\n,1\n", "line 2 of a.csv is empty"),
        ("a.csv", 'text\n"好\n', "line 2 of a.csv is not a row of a table"),
        ("a.csv", b"text\n\xff\n", "line 2 of a.csv is not UTF-8"),
        ("a.csv", "", "a.csv is empty"),
        ("a.tsv", "", "a.tsv is empty"),
        ("a.csv", "\n1\n", "no column `text`"),
        ("a.csv", "text\n", "a.csv holds no text"),
        ("a.jsonl", '{"text": "好"}\n{"text": 3}\n', "`text` in line 2 of a.jsonl is not a text"),
        ("a.jsonl", "[1]\n", "line 1 of a.jsonl begins a JSON list"),
        ("a.jsonl", '{"text": "好"}\n[1]\n', "line 2 of a.jsonl is not a JSON object"),
        ("a.jsonl", '{"text": "好"}\n{\n', "line 2 of a.jsonl is not JSON"),
        ("a.jsonl", '{"text": "好", "text": "差"}\n', "line 1 of a.jsonl is not JSON"),
        ("a.csv", "text;id\n1,5\n", "line 2 of a.csv has 1 field, and the header has 2"),
        ("a.doc", "", "no known ending"),
        ("a.xlsx", "", "a.xlsx is a workbook"),
        ("a.csv", b"PK\x03\x04\x14", "a.csv is a zip archive"),
        ("a.txt", "好\n".encode("utf-16-le"), "is not UTF-8"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, name: str, content: str | bytes, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        inputs.read_texts(file(tmp_path, name, content))
    assert named in caught.value.what


def test_a_workbook_is_told_how_to_become_a_table_without_excel(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        inputs.check_file(tmp_path / "酒店 评论.xlsx")
    save, command = caught.value.fix.split("; or with LibreOffice: ")
    assert save == SAVE_AS_CSV
    assert shlex.split(command) == [
        "soffice", "--headless", "--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76",
        str(tmp_path / "酒店 评论.xlsx"),
    ]  # fmt: skip
    assert "或使用 LibreOffice：soffice" in render(caught.value.fix, "zh")


def test_a_quoted_table_named_tsv_and_a_text_that_bench_cannot_take_get_their_own_fix(tmp_path: Path) -> None:
    with inputs.opened(file(tmp_path, "a.tsv", "text\tn\n" + "好\t0\n" * 300 + '"很好\n真的"\t1\n')) as source:
        late = [row.error for row in source.rows()][300]  # its first lines showed no quotes
    assert late is not None and late.fix.endswith("is read when it is named .csv")
    with pytest.raises(UsageError) as caught:
        inputs.read_texts(file(tmp_path, "a.csv", "text,n\n很好,1\n,2\n"))
    assert caught.value.fix == "write a text there, or remove the row"
    with pytest.raises(UsageError) as caught, inputs.opened(gb18030_file(tmp_path), encoding="utf-16"):
        pass
    assert caught.value.fix == "give --encoding gb18030"


def gb18030_file(folder: Path) -> Path:
    (folder / "gb.csv").write_text("text\n房间很大，服务也很好\n", encoding="gb18030")
    return folder / "gb.csv"


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
    assert inputs.read_texts(file(tmp_path, name, content), pair_column="text_pair") == PAIRS


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.txt", "a\tb\nc\n", "line 2 of a.txt is not a pair of texts"),
        ("a.txt", "a\tb\tc\n", "line 1 of a.txt is not a pair of texts"),
        ("a.txt", "a\t \n", "text 2 of line 1 of a.txt is empty"),
        ("a.txt", "a\t\u200b\n", "text 2 of line 1 of a.txt is empty"),
        ("a.txt", "\tb\n", "text 1 of line 1 of a.txt is empty"),
        ("a.tsv", "text\tother\n1\t2\n", "a.tsv has no column `text_pair`"),
        ("a.tsv", "text_pair\tother\n1\t2\n", "a.tsv has no column `text`"),
        ("a.csv", "text,text_pair\na,\n", "column `text_pair` of line 2 of a.csv is empty"),
        ("a.csv", "text,text_pair\n\ufe0f,a\n", "column `text` of line 2 of a.csv is empty"),
        ("a.csv", "text,text_pair\n", "a.csv holds no text"),
        ("a.jsonl", '{"text": "a"}\n', "not a JSON object with a key `text` and a key `text_pair`"),
        ("a.jsonl", '{"text": "a", "text_pair": 1}\n', "`text_pair` in line 1 of a.jsonl is not a text"),
    ],
)
def test_a_bad_pair_is_named(tmp_path: Path, name: str, content: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        inputs.read_texts(file(tmp_path, name, content), pair_column="text_pair")
    assert named in caught.value.what


def test_an_error_names_the_option_for_a_missing_column(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        inputs.read_texts(tmp_path / "a.txt")
    path = file(tmp_path, "a.tsv", "q1\tq2\n1\t2\n")
    for columns, option in ((("text", "q2"), "--column"), (("q1", "text_pair"), "--pair-column")):
        with pytest.raises(UsageError) as caught:
            inputs.read_texts(path, *columns)
        assert caught.value.fix.endswith(f": {option} NAME")
    assert inputs.read_texts(path, "q1", "q2") == [("1", "2")]


def test_the_names_of_columns_are_few_and_short_in_a_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        inputs.read_texts(file(tmp_path, "a.csv", "好吃" * 20_000 + ",b" * 100 + "\n" + "差" + ",c" * 100 + "\n"))
    assert "好吃" * 20 + "..., b, b" in caught.value.why and len(caught.value.why) < 200


def test_pairs_on_a_stream_are_answered_line_by_line() -> None:
    lines = lines_of(io.BytesIO("\ufeffa\tb\r\nc d\te\nf\n".encode()), "standard input", "text", "text_pair")
    assert [next(lines), next(lines)] == [("a", "b"), ("c d", "e")]
    with pytest.raises(UsageError, match="line 3 of standard input is not a pair of texts"):
        next(lines)


def test_a_line_without_end_is_no_text() -> None:
    class Zeros(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            assert len(buffer) <= inputs.MAX_LINE_BYTES
            buffer[:] = bytes(len(buffer))
            return len(buffer)

    with pytest.raises(UsageError, match="line 1 of /dev/zero is longer than 4 MiB"):
        next(lines_of(Zeros(), "/dev/zero", "text"))


# --- bad rows -------------------------------------------------------------------------------------------------


def test_a_header_of_a_thousand_columns_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "x.csv", b"text" + b",c" * 1023 + b"\n" + "好".encode() + b",1" * 1023 + b"\n")
    assert inputs.read_texts(path) == ["好"]
    with pytest.raises(UsageError, match="1025 columns"):
        inputs.read_texts(file(tmp_path, "y.csv", b"text" + b",c" * 1024 + b"\n"))


def told(tmp_path: Path, name: str, content: bytes, *columns: str) -> list[tuple[int, object]]:
    """For each row its line, and its item or what is wrong with it."""
    with inputs.opened(file(tmp_path, name, content), *(columns or ("text",))) as source:
        return [(row.line, row.item if row.error is None else row.error.what) for row in source.rows()]


NO_TEXT = b"\xff"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"a\n\n" + NO_TEXT + b"\nb", [(1, "a"), (3, "is not UTF-8"), (4, "b")]),
        (
            "a.tsv",
            b"id\ttext\n1\ta\n2\n\n3\t" + NO_TEXT + b"\n4\tb\n",
            [(2, "a"), (3, "has 1 field,"), (5, "is not UTF-8"), (6, "b")],
        ),
        (
            "a.csv",
            b'text,id\n"a\nb",1\n"x"y,2\n' + NO_TEXT + b',3\n\n"c",4,5\nd,6\n"e,7\n',
            [
                (2, "a\nb"), (4, "not a row of a table"), (5, "not UTF-8"), (7, "3 fields"), (8, "d"),
                (9, "not a row"),
            ],
        ),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"tex": 1}\nnull\n{"text": "' + NO_TEXT + b'"}\n[[\n{"text": "\\ud83d"}\n{"text": " "}\n'
            b'{"text": "\\ufeff\\u00ad"}\n',
            [
                (1, "a"), (2, "not a JSON object"), (3, "not a JSON object"), (4, "not UTF-8"),
                (5, "not JSON"), (6, "\ud83d"), (7, "is empty"), (8, "is empty"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_bad_row_costs_no_other(tmp_path: Path, name: str, content: bytes, expected: list[tuple[int, str]]) -> None:
    found = told(tmp_path, name, content)
    assert [line for line, _ in found] == [line for line, _ in expected]
    for (line, what), (_, wanted) in zip(found, expected, strict=True):
        assert wanted in str(what), line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "\n好\n\n \u3000\u200b\n差\n\n"),
        ("a.tsv", "text\tid\n好\t1\n\n \n差\t2\n\n"),
        ("a.csv", "text,id\n好,1\n\n\n差,2\n\n"),
        ("a.jsonl", '{"text": "好"}\n\n\n{"text": "差"}\n\n'),
    ],
)
def test_blank_lines_are_counted_and_are_no_rows(tmp_path: Path, name: str, content: str) -> None:
    with inputs.opened(file(tmp_path, name, content)) as source:
        assert [row.item for row in source.rows()] == ["好", "差"]
    assert source.file.blank == (4 if name == "a.txt" else 3)


def test_a_blank_line_of_a_pipe_is_a_row() -> None:
    stream = io.BufferedReader(io.BytesIO("好\n\n差\n\u200b\n".encode()))
    source = inputs.Source(stream, inputs.STDIN, ".txt", ["text"], blank_rows=True)
    assert [row.item for row in source.rows()] == ["好", None, "差", None]


class Pipe(io.RawIOBase):
    """A pipe that gives one byte at each read."""

    def __init__(self, content: bytes) -> None:
        self._left = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raw = self._left.read(1)
        buffer[: len(raw)] = raw
        return len(raw)


@pytest.mark.parametrize("encoding", texts.ENCODINGS)
@pytest.mark.parametrize("length", [1, 50_000], ids=["short", "long"])
def test_a_pipe_may_cut_a_character_in_two(monkeypatch: pytest.MonkeyPatch, encoding: str, length: int) -> None:
    lines = ["好" * length, "太差"]
    raw = ("\n".join(lines) + "\n").encode("cp950" if encoding == "big5" else encoding)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(raw))))
    assert list(inputs.items(inputs.standard_input(["text"], encoding))) == lines
    if length == 1:  # another encoding is found as in one piece
        other = "gb18030" if encoding != "gb18030" else "utf-16"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(raw))))
        with pytest.raises(UsageError, match=f"standard input is not {other.upper()}"):
            inputs.standard_input(["text"], other)


LONG = "好吃，真的" * 6_000  # 90 KB of UTF-8; a sample has 64 KiB


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("a.txt", f"{LONG}\n差\n", "text"),
        ("a.csv", f'text;id\n"{LONG},;""";1\n差;2\n', "text"),
        ("a.tsv", f"text\tid\n{LONG}\t1\n差\t2\n", "text"),
        ("a.jsonl", f'{{"text": "{LONG}"}}\n{{"text": "差"}}\n', "text"),
        ("a.csv", f"{LONG},text\n1,{LONG}\n2,差\n", "text"),
        ("a.tsv", "a\t" * 1000 + f"{LONG}\n" + "b\t" * 1000 + f"{LONG}\n" + "b\t" * 1000 + "差\n", LONG),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_a_first_line_may_be_longer_than_a_sample(
    tmp_path: Path, name: str, content: str, column: str, encoding: str
) -> None:
    path = file(tmp_path, name, content.encode(encoding))
    found = inputs.read_texts(path, column, encoding=encoding)
    assert [one.rstrip(',;"') for one in found if isinstance(one, str)] == [LONG, "差"]


@pytest.mark.parametrize(
    ("encoding", "written"), [("gb18030", "gbk"), ("utf-16", "utf-16"), ("utf-16", "utf-16-be"), ("big5", "cp950")]
)
def test_other_encodings_are_named_and_read_when_asked_for(tmp_path: Path, encoding: str, written: str) -> None:
    good = "很好，房間很大" if encoding == "big5" else "很好，房间很大"
    text = "text,id\n" + f"{good},1\n太差,2\n" * 30_000
    raw = text.encode(written)
    path = file(tmp_path, "a.csv", codecs.BOM_UTF16_BE + raw if written == "utf-16-be" else raw)
    with pytest.raises(UsageError, match=r"a\.csv is not UTF-8") as error:
        inputs.read_texts(path)
    assert error.value.fix == f"give --encoding {encoding}"
    with inputs.opened(path, encoding=encoding) as source:
        found = [row.item for row in source.rows()]
    assert found == [good, "太差"] * 30_000


def test_what_is_no_text_in_its_encoding_is_a_bad_row(tmp_path: Path) -> None:
    path = file(tmp_path, "a.txt", "很好\n".encode("gbk") + b"\xff\n" + "太差\n".encode("gbk"))
    with inputs.opened(path, encoding="gb18030") as source:
        rows = list(source.rows())
    assert [row.item for row in rows] == ["很好", None, "太差"]
    assert rows[1].error is not None and rows[1].error.what == "line 2 of a.txt is not GB18030"


@pytest.mark.parametrize(
    ("content", "encoding", "named", "fix"),
    [
        ("很好\n".encode(), "gb18030", "a.txt is not GB18030", "omit --encoding"),
        ("\ufeffgood\n".encode(), "gb18030", "a.txt is not GB18030", "omit --encoding"),
        ("很好\n".encode("utf-16"), "gb18030", "a.txt is not GB18030", "give --encoding utf-16"),
        ("很好\n".encode("gbk"), "utf-16", "a.txt is not UTF-16", "give --encoding gb18030"),
        ("很好\n太吵了，睡不着\n".encode("gbk"), "big5", "a.txt is not BIG5", "give --encoding gb18030"),
        ("服務員也很熱情\n".encode("big5"), "gb18030", "a.txt is not GB18030", "give --encoding big5"),
        ("服務員也很熱情\n".encode("big5"), "utf-8", "a.txt is not UTF-8", "give --encoding big5"),
        (b"PK\3\4", "gb18030", "a.txt is a zip archive", SAVE_AS_CSV),
    ],
)
def test_an_encoding_that_the_file_has_not_is_refused(
    tmp_path: Path, content: bytes, encoding: str, named: str, fix: str
) -> None:
    path = file(tmp_path, "a.txt", content)
    with pytest.raises(UsageError) as caught, inputs.opened(path, encoding=encoding):
        pass
    assert (caught.value.what.startswith(named), caught.value.fix) == (True, fix)


@pytest.mark.parametrize("content", [b"good\n", "模\n".encode("gbk")], ids=["ASCII", "UTF-8 too, by chance"])
def test_what_may_be_gb18030_is_read_as_it(tmp_path: Path, content: bytes) -> None:
    with inputs.opened(file(tmp_path, "a.txt", content), encoding="gb18030") as source:
        assert [row.item for row in source.rows()] == [content.decode("gbk").strip()]


def test_a_row_of_a_table_keeps_its_fields(tmp_path: Path) -> None:
    with inputs.opened(file(tmp_path, "a.csv", "\ufeffid,text\n1,好\n2,\n3\n")) as source:
        assert (source.header, source.file.lines.has_mark) == (["id", "text"], True)
        assert [list(row.fields) for row in source.rows()] == [["1", "好"], ["2", ""], ["3", ""]]


def test_a_row_of_many_lines_is_noted(tmp_path: Path) -> None:
    """A quotation mark that nobody closed takes in all lines up to the next one."""
    rows = [f"{n},好\n" for n in range(2, 200)]
    rows[3], rows[102] = '5,"质量好5\n', '104,他说很好"\n'
    with inputs.opened(file(tmp_path, "a.csv", "id,text\n" + "".join(rows))) as source:
        assert len(list(source.rows())) == 99
        assert list(source.notes()) == ["note: lines 5 to 104 of a.csv are one row: check the quotation marks there"]
    rows[102] = "104,他说很好\n"
    with inputs.opened(file(tmp_path, "b.csv", "id,text\n" + "".join(rows))) as source:
        assert [row.item is None for row in source.rows()] == [False] * 3 + [True]
        assert list(source.notes()) == ["note: lines 5 to 199 of b.csv are one row: check the quotation marks there"]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.csv", 'text,label\n好,1\n"开,1\n' + "差,0\n" * 500, "line 3 of a.csv, with the lines up to"),
        ("a.json", '[{"text": "好"} {"text": "差"}]', "line 1 of a.json lacks a comma"),
    ],
)
def test_what_ends_before_the_end_of_a_file_is_no_bad_row_but_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, named: str
) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 1000)
    with inputs.opened(file(tmp_path, name, content)) as source:
        rows = source.rows()
        assert next(rows).item == "好"
        with pytest.raises(UsageError) as caught:
            next(rows)
    assert caught.value.what.startswith(named)


def test_the_column_that_is_meant_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught, inputs.opened(file(tmp_path, "a.csv", "id, Text\n1,好\n")):
        pass
    assert caught.value.fix == "name the column that holds the texts: --column ' Text'"


LAYOUTS = {".txt": b"\n", ".tsv": b"\n\t", ".csv": b'\n,"\r', ".jsonl": b'\n{}"[]:'}


@given(st.data(), st.sampled_from(sorted(LAYOUTS)))
def test_a_file_with_any_content_is_read_to_its_end(data: st.DataObject, suffix: str) -> None:
    """Random bytes, with what has a meaning in that form among them."""
    marks = st.sampled_from([bytes([byte]) for byte in LAYOUTS[suffix]])
    body = b"".join(data.draw(st.lists(st.binary(max_size=6) | marks, max_size=30)))
    header = b"" if suffix in (".txt", ".jsonl") else b"text,id\n".replace(b",", b"\t" if suffix == ".tsv" else b",")
    source = inputs.Source(io.BufferedReader(io.BytesIO(header + body)), "random", suffix, ["text"])
    is_list = suffix == ".jsonl" and source.file.is_list
    try:
        found = list(source.rows())
    except UsageError:
        assert is_list  # of which nothing can be read behind what is no JSON
        return
    assert all((row.item is None) != (row.error is None) for row in found)
    ends = [row.end for row in found]
    assert ends == sorted(ends) and (not ends or ends[-1] <= len(header + body))
    assert source.file.blank or not body or ends[-1] == len(header + body)
    assert all(before.line < after.line for before, after in itertools.pairwise(found))


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "big5", "utf-16"])
def test_how_far_a_file_is_read_is_known_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    lines = "".join(f"{number},這家飯店的服務很好，房間也很乾淨 {'a' * (number % 40)}\n" for number in range(20_000))
    path = file(tmp_path, "a.csv", f"id,text\n{lines}".encode(encoding))
    with inputs.opened(path, encoding=encoding) as source:
        *_, last = source.rows()
    assert source.total_bytes is not None
    assert last.end == pytest.approx(source.total_bytes, rel=0.05)


def test_files_of_old_macs_are_read_and_a_text_may_hold_their_line_end(tmp_path: Path) -> None:
    lines = [f"第{number}行" for number in range(30_000)]
    old = file(tmp_path, "old.txt", "\r".join(lines) + "\r")
    assert inputs.read_texts(old) == lines
    text = "好" * 40_000 + "\r" + "差"  # longer than what is looked at first
    with inputs.opened(file(tmp_path, "new.txt", f"{text}\n坏\n")) as source:
        first, second = source.rows()
    assert first.error is not None and (second.line, second.item) == (2, "坏")
