"""Sheets of Excel workbooks as tables."""

from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from edgepack.artifacts import Row
from edgepack.data.draft.columns import choose_columns
from edgepack.data.draft.profile import profile
from edgepack.data.tables import read_rows
from edgepack.data.workbooks import other_sheets
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack.recipe.paths import on_disk, sheet_of
from edgepack.stages.keys import file_input

HEADER = ["id", "text", "label"]


def book(folder: Path, **sheets: list[list[Any]]) -> Path:
    made = Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(folder / "a.xlsx")
    return folder / "a.xlsx"


def read(file: Path) -> tuple[list[tuple[int, Row]], list[str]]:
    log = FindingLog(file)
    rows = list(read_rows(file, Columns(), log))
    return rows, [f"{finding.line}: {finding.severity}: {finding.reason}" for finding in log.findings()]


def test_rows_have_the_numbers_that_excel_shows(tmp_path: Path) -> None:
    rows = [HEADER, [1, "好\n很", 1.0], [], [2, "差", True], [3, date(2026, 1, 2), "b"], [4, None, "c"]]
    found, findings = read(book(tmp_path, first=rows))
    assert found == [(2, Row("好\n很", "1")), (4, Row("差", "TRUE")), (5, Row("2026-01-02T00:00:00", "b"))]
    assert findings == ["6: error: the text is empty"]


def test_a_sheet_is_named_behind_the_file(tmp_path: Path) -> None:
    file = book(tmp_path, first=[HEADER, [1, "好", "a"]], 第二=[HEADER, [1, "差", "b"]])
    second = file.with_name("a.xlsx#第二")
    assert (on_disk(second), sheet_of(second), on_disk(file), sheet_of(file)) == (file, "第二", file, "")
    assert [row for _, row in read(file)[0]] == [Row("好", "a")]
    assert [row for _, row in read(second)[0]] == [Row("差", "b")]
    assert (other_sheets(file), other_sheets(second)) == (["第二"], [])
    assert file_input("train", file) != file_input("train", second)
    (finding,) = read(file.with_name("a.xlsx#二"))[1]
    assert "has no sheet `二`" in finding


def test_a_wide_sheet_has_the_columns_that_its_header_names(tmp_path: Path) -> None:
    rows = [[*HEADER, None, None], [1, "好", "a", None, None], [2, "差", "b", None, "note"]]
    found, findings = read(book(tmp_path, first=rows))
    assert found == [(2, Row("好", "a"))]
    assert findings == ["3: error: this row has 5 fields, and the header has 3"]


def test_its_columns_are_found_as_those_of_other_tables(tmp_path: Path) -> None:
    rows = [[number, f"第{number}位客人说房间很大", number % 2] for number in range(30)]
    assert choose_columns(profile(book(tmp_path, first=[["编号", "评论", "标签"], *rows]))) == Columns(
        text="评论", label="标签"
    )


def test_a_column_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    found, findings = read(book(tmp_path, first=[[*HEADER, "text"], [1, "好", "a", "差"]]))
    assert found == [] and findings == [
        "1: error: duplicate column `text` in the header: `id`, `text`, `label`, `text`"
    ]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text,label\n"])
def test_what_is_no_workbook_is_a_finding(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.xlsx").write_bytes(content)
    assert read(tmp_path / "a.xlsx") == ([], ["None: error: this file is not a workbook that can be read"])


def test_an_archive_of_another_kind_is_a_finding(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("a.txt", "x")
    assert read(tmp_path / "a.xlsx") == ([], ["None: error: this file is not a workbook that can be read"])


def sheet_of_xml(folder: Path, rows: str) -> Path:
    """A workbook with these rows of XML."""
    file = book(folder, first=[HEADER])
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["xl/worksheets/sheet1.xml"] = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        f'<dimension ref="A1"/><sheetData>{rows}</sheetData></worksheet>'
    ).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return file


def row(number: int, *cells: str, first: str = "A") -> str:
    places = [first, "B", "C"]
    filled = "".join(
        f'<c r="{place}{number}" t="str"><v>{cell}</v></c>' for place, cell in zip(places, cells, strict=False)
    )
    return f'<row r="{number}">{filled}</row>'


HEAD = row(1, *HEADER)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (HEAD + row(10**12, "1", "好", "a"), "has a row or a column beyond 1,048,576 and 1,024"),
        (HEAD + row(2, "1", first="ZZZ"), "has a row or a column beyond 1,048,576 and 1,024"),
        (HEAD + "<row>" * 100 + "</row>" * 100, "is not a workbook that can be read"),
        (HEAD + "<row", "is not a workbook that can be read"),
        (f"{HEAD}<!-- {' ' * (129 << 20)} -->", "has more than 128 MiB unpacked"),
    ],
)
def test_a_small_file_takes_neither_time_nor_memory(tmp_path: Path, rows: str, words: str) -> None:
    found, (finding,) = read(sheet_of_xml(tmp_path, rows))
    assert found == [] and words in finding


def test_all_rows_are_read_whatever_the_file_says_of_their_number(tmp_path: Path) -> None:
    rows = HEAD + row(2, "1", "好", "a") + row(4, "2", "差", "b")
    assert read(sheet_of_xml(tmp_path, rows))[0] == [(2, Row("好", "a")), (4, Row("差", "b"))]


def test_the_first_sheet_is_one_that_is_visible(tmp_path: Path) -> None:
    made = Workbook()
    made.active.sheet_state = "hidden"
    shown = made.create_sheet("shown")
    for cells in (HEADER, [1, "好", "a"]):
        shown.append(cells)
    made.save(tmp_path / "a.xlsx")
    assert [found for _, found in read(tmp_path / "a.xlsx")[0]] == [Row("好", "a")]
