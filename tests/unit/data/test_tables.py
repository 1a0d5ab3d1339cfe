"""Split files: rows with their lines, and every finding where it stands."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.golden import assert_golden

from edgepack.artifacts import Row
from edgepack.data.files import format_of, no_progress
from edgepack.data.tables import read_records, read_rows
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import Finding, Severity, errors
from edgepack.recipe.model import Columns
from edgepack_runtime.batch.inputs import opened, read_texts
from edgepack_runtime.errors import UsageError
from edgepack_runtime.rows.label_cells import NOTHING_WRITTEN, label_in
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.util.texts import is_unseen

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
FILES = sorted(file.name for file in GOLDEN.iterdir() if file.suffix != ".txt")


NUMBERS = {
    "numbers.tsv": Columns(text="1", label="2"),
    "number-range.tsv": Columns(text="1", label="3"),
    "numbered-header.tsv": Columns(text="1", label="2"),
}


@dataclass(frozen=True)
class Table:
    """All that was read of one file."""

    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    findings: tuple[Finding, ...]


def read_table(file: Path, columns: Columns) -> Table:
    log = FindingLog(file)
    read = list(read_rows(file, columns, log))
    return Table(tuple(row for _, row in read), tuple(line for line, _ in read), log.findings())


def read(folder: Path, name: str, content: str | bytes, columns: Columns | None = None) -> Table:
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(raw)
    return read_table(folder / name, columns or Columns())


@pytest.mark.parametrize("name", FILES)
def test_rows_and_findings_are_those_of_the_golden_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    table = read_table(Path(name), NUMBERS.get(name, Columns()))
    rows = zip(table.lines, table.rows, strict=True)
    found = "".join(f"{line}: {row.label}: {row.text!r}\n" for line, row in rows)
    found += "".join(f"{finding}\n" for finding in table.findings)
    assert_golden(found, Path(f"{name}.txt"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks_are_no_content(tmp_path: Path, end: str, mark: bytes) -> None:
    for name, separator in (("a.tsv", "\t"), ("a.csv", ",")):
        text = end.join([f"label{separator}text", f"1{separator}很好", ""])
        table = read(tmp_path, name, mark + text.encode())
        assert (table.rows, table.lines, table.findings) == ((Row("很好", "1"),), (2,), ())


def test_tsv_takes_quotes_and_odd_line_separators_as_text(tmp_path: Path) -> None:
    text = 'say "hi\u2028there\x85 \x0b"'
    assert read(tmp_path, "a.tsv", f"text\tlabel\n{text}\tx\n").rows == (Row(text, "x"),)


def test_other_columns_are_left_alone(tmp_path: Path) -> None:
    columns = Columns(text="review", label="stars")
    table = read(tmp_path, "a.tsv", "id\tstars\treview\n7\t5\t很好\n", columns)
    assert table.rows == (Row("很好", "5"),)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "text;label (a,b)\n很好, 真的;a\n太吵;b\n", Columns(label="label (a,b)")),
        ("a.csv", 'text;label\n"很好; 真的";a\n太吵;b\n', Columns()),
        ("a.csv", 'text\tlabel\n"很好\t真的"\ta\n太吵\tb\n', Columns()),
        ("a.csv", "text|label\n很好|a\n太吵|b\n", Columns()),
        ("a.csv", "text,label\r很好,a\r太吵,b\r", Columns()),
        ("a.csv", "text,label\n很\0好,a\n太吵,b\n", Columns()),
        ("a.csv", "id, text , label\n1,很好,a\n2,太吵,b\n", Columns()),
        ("a.tsv", "\n \ntext\tlabel\r\r\n很好\ta\r\r\n太吵\tb\n", Columns()),
        ("a.csv", 'text,label\n"很好\n",a\n\n""\n \n太吵,b\n', Columns()),
        ("a.jsonl", '{"text": "很好\\r\\n", "label": "a"}\n{"text": "太吵", "label": "b"}', Columns()),
        ("a.jsonl", '\u3000{"text": "很好", "label": "a"}\n\x0c\n{"text": "太吵", "label": "b"}', Columns()),
    ],
)
def test_devices_read_the_same_rows(tmp_path: Path, name: str, content: str, columns: Columns) -> None:
    table = read(tmp_path, name, content, columns)
    assert not errors(list(table.findings))
    assert [row.label for row in table.rows] == ["a", "b"]
    assert [row.text for row in table.rows] == read_texts(tmp_path / name)


CELLS = st.sampled_from(["好", "x y", "", " ", "\0", '"', "b\r", "a\n", '"q"', "a,b\tc"])
ODD_ROWS = st.lists(CELLS, max_size=4) | st.sampled_from([[""], [" "], ["", ""], ["\u3000", "", ""]])
HEADERS = st.permutations(["text", "label", " id"]) | st.sampled_from(
    [["text"], [" text", "text"], [" text ", "text "], ["text", "text"], ["sep=,"], ["", "text"], ["label"], ['"text']]
)


@given(st.data(), st.sampled_from([("a.tsv", "\t"), ("a.csv", ",")]), st.sampled_from(["\n", "\r\n"]))
def test_training_and_device_read_the_same_rows_of_any_table(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, form: tuple[str, str], end: str
) -> None:
    (name, separator), above = form, data.draw(st.lists(st.sampled_from([[], [" "], ["", ""]]), max_size=2))
    written = csv.writer(stream := io.StringIO(newline=""), delimiter=separator, lineterminator=end)
    header = data.draw(HEADERS)
    rows = st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)) | ODD_ROWS, max_size=6)
    for row in [*above, header, *data.draw(rows)]:
        if name == "a.csv" and data.draw(st.booleans()):
            written.writerow(row)  # with the quotes that it needs
        else:
            stream.write(separator.join(row) + end)
    file = tmp_path_factory.mktemp("odd") / name
    file.write_text(stream.getvalue(), encoding="utf-8", newline="")
    check_both_sides(file)


OBJECTS = [
    '{"text": "好"}',
    '{"text": "a\\n", "id": ":"}',
    '{"text": " "}',
    '{"text": 3}',
    '{"text": null}',
    '{"tex": "a"}',
]
LINES = ["", " ", "\u3000", "\ufeff", "null", "[1]", "{", "a\tb", '{"text": "a", "text": "b"}', "\0"]


@given(st.lists(st.sampled_from([*OBJECTS, *LINES]), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_training_and_device_read_the_same_rows_of_any_json_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    file = tmp_path_factory.mktemp("odd") / "a.jsonl"
    file.write_text(end.join(lines), encoding="utf-8", newline="")
    check_both_sides(file)


@dataclass
class LineLog(FindingLog):
    """A log that knows the lines of all findings."""

    lines: set[int | None] = field(default_factory=set)

    def add(self, kind: str, severity: Severity, line: int | None, reason: str, fix: str) -> None:
        self.lines.add(line)
        super().add(kind, severity, line, reason, fix)


def check_both_sides(file: Path) -> None:
    """Check that both find the same rows, with the same texts, up to the one where training stops, or refuse the file.

    A row without a text has a finding in training, and no answer on a device.
    """
    log, trained, ended = LineLog(file), dict[int, object](), False
    try:
        trained.update(
            (line, values[0])
            for line, values in read_records(file, {"text": "text"}, log, no_progress, format_of(file))
        )
    except RowError:
        ended = True
    texts = [(line, text) for line, text in trained.items() if isinstance(text, str) and not is_unseen(text)]
    try:
        with opened(file) as source:
            rows = [(row.line, row.item) for row in source.rows()]
    except UsageError:
        assert (trained, ended or log.ended) == ({}, True)
        return
    answered = [(line, item) for line, item in rows if item is not None]
    if ended or log.ended:
        assert texts == answered[: len(texts)]
    else:
        assert texts == answered
        assert {line for line, _ in rows} == trained.keys() | log.lines


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: not is_unseen(text) and text.strip() not in NOTHING_WRITTEN
)
LABEL = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc", "Cf"]), min_size=1, max_size=8).filter(
    lambda label: label_in(label) == label
)
ROWS = st.lists(st.tuples(TEXT, LABEL), min_size=1, max_size=6)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FOLDER
@given(ROWS)
def test_csv_and_jsonl_give_back_what_was_written(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    expected = tuple(Row(text, label) for text, label in rows)
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("text", "label"), *rows])
    table = read(tmp_path, "a.csv", stream.getvalue())
    assert not errors(list(table.findings))
    assert table.rows == expected
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    table = read(tmp_path, "a.jsonl", "\n".join(lines))
    assert not errors(list(table.findings))
    assert table.rows == expected
    assert table.lines == tuple(range(1, len(rows) + 1))


@SAME_FOLDER
@given(st.sampled_from(["a.tsv", "a.csv", "a.jsonl"]), st.binary(max_size=200))
def test_any_bytes_get_an_answer(tmp_path: Path, name: str, raw: bytes) -> None:
    table = read(tmp_path, name, raw)
    assert table.rows or table.findings or name != "a.jsonl"
    assert len(table.rows) == len(table.lines)


TABLE_LIKE = st.text(alphabet="textlab\t,\n\r\"'{}[]:\\ud80 10\ufffd酒\x00", max_size=80)


@SAME_FOLDER
@given(st.sampled_from(["a.tsv", "a.csv", "a.jsonl"]), TABLE_LIKE)
def test_anything_that_looks_like_a_table_gets_an_answer(tmp_path: Path, name: str, body: str) -> None:
    head = {"a.tsv": "text\tlabel\n", "a.csv": "text,label\n", "a.jsonl": '{"text": "a", "label": 1}\n'}[name]
    table = read(tmp_path, name, head + body)
    bound = (head + body).count("\n") + body.count("\r") + 1
    assert all(finding.line is None or 1 <= finding.line <= bound for finding in table.findings)
    assert all(row.text.strip() and row.label for row in table.rows)


def test_a_missing_value_in_place_of_a_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\n\\N\ta\nNULL\ta\n好\tb\n", encoding="utf-8")
    log = FindingLog(tmp_path / "a.tsv")
    assert [row.text for _, row in read_rows(tmp_path / "a.tsv", Columns(), log)] == ["好"]
    assert [(finding.line, finding.severity) for finding in log.findings()] == [(2, "warning"), (3, "warning")]
