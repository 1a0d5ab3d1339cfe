"""Sheets of Excel workbooks as tables."""

from __future__ import annotations

import os
import sys
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from edgepack.artifacts import Row
from edgepack.data import workbooks
from edgepack.data.choose_columns import choose_columns
from edgepack.data.draft.profile import profile
from edgepack.data.draft.source import look_at
from edgepack.data.tables import read_rows
from edgepack.data.workbooks import SheetRows, other_sheets
from edgepack.errors import RecipeInvalidError
from edgepack.progress import SILENT
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack.recipe.paths import on_disk, sheet_of
from edgepack.stages.keys import file_input
from edgepack_runtime.rows.formats import BY_SUFFIX

HEADER = ["id", "text", "label"]
NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
STYLES, SHEET = "xl/styles.xml", "xl/worksheets/sheet1.xml"


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
    assert read(book(tmp_path, first=rows)) == ([(2, Row("好", "a")), (3, Row("差", "b"))], [])


def test_a_row_whose_last_cells_are_empty_is_a_whole_row(tmp_path: Path) -> None:
    rows = [["text", "label", "remark"], ["好", "a", "see 3"], ["差", "b"], ["一般"]]
    found, findings = read(book(tmp_path, first=rows))
    assert found == [(2, Row("好", "a")), (3, Row("差", "b"))]
    assert findings == ["4: error: the label is empty"]


def test_its_columns_are_found_as_those_of_other_tables(tmp_path: Path) -> None:
    rows = [[number, f"第{number}位客人说房间很大", number % 2] for number in range(30)]
    assert choose_columns(profile(book(tmp_path, first=[["编号", "评论", "标签"], *rows]))) == Columns(
        text="评论", label="标签"
    )


def test_an_empty_row_of_many_cells_is_looked_at_once() -> None:
    looks = []

    class Cell(str):
        __slots__ = ()

        def __bool__(self) -> bool:
            looks.append(self)
            return False

    [(_, fields)] = SheetRows(iter([[Cell() for _ in range(500)]]), "a.xlsx", BY_SUFFIX[".csv"]).cells()
    assert (fields, len(looks)) == ([], 500)


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


def with_member(file: Path, name: str, content: str) -> Path:
    """A workbook in which a member has another content."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, raw in {**members, name: content}.items():
            archive.writestr(member, raw)
    return file


def sheet_of_xml(folder: Path, rows: str) -> Path:
    """A workbook with these rows of XML."""
    content = f'<worksheet {NAMESPACE}><dimension ref="A1"/><sheetData>{rows}</sheetData></worksheet>'
    return with_member(book(folder, first=[HEADER]), SHEET, content)


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
        (HEAD + "<row", "is not a workbook that can be read"),
        (HEAD + row(2, "1", "a" * (17 << 20)), "has a row of more than 16 MiB: 2"),
    ],
)
def test_a_sheet_has_limits_that_a_table_has(tmp_path: Path, rows: str, words: str) -> None:
    found, (finding,) = read(sheet_of_xml(tmp_path, rows))
    assert found == [] and words in finding


def limited(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """Have workbooks read with another limit."""
    code = (
        "import os, resource\nfrom edgepack.data import workbook_process\n"
        f"workbook_process.LIMITS[resource.{limit}] = {most}\nos._exit(workbook_process.main())"
    )
    monkeypatch.setattr(workbooks, "COMMAND", (sys.executable, "-I", "-c", code))


@pytest.mark.parametrize(
    ("limit", "most", "member", "content"),
    [
        ("RLIMIT_CPU", 1, STYLES, f"<cellXfs>{'<xf/>' * 800_000}</cellXfs>"),
        ("RLIMIT_DATA", 1 << 27, STYLES, "<a/>" * 3_000_000),
        ("RLIMIT_CPU", 1, SHEET, "<a/>" * 9_000_000),
        ("RLIMIT_FSIZE", 1 << 16, SHEET, f"<sheetData>{'<row/>' * 100_000}</sheetData>"),
    ],
)
def test_a_small_file_takes_neither_time_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, member: str, content: str
) -> None:
    limited(monkeypatch, limit, most)
    root = "styleSheet" if member == STYLES else "worksheet"
    file = with_member(book(tmp_path, first=[HEADER]), member, f"<{root} {NAMESPACE}>{content}</{root}>")
    assert file.stat().st_size < 200_000
    assert read(file) == ([], ["None: error: this file takes more than 60 s or 2 GiB to open"])


def test_how_deep_xml_is_does_not_matter(tmp_path: Path) -> None:
    deep = "<a>" * 500_000 + "</a>" * 500_000
    sheet = f"<worksheet {NAMESPACE}>{deep}<sheetData>{HEAD}{row(2, '1', '好', 'a')}</sheetData></worksheet>"
    file = with_member(book(tmp_path, first=[HEADER]), SHEET, sheet)
    assert read(file) == ([(2, Row("好", "a"))], [])


def test_a_reader_that_waits_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbooks, "MOST_WALL_S", 0.1)
    monkeypatch.setattr(workbooks, "COMMAND", (sys.executable, "-I", "-c", "import time; time.sleep(600)"))
    assert "takes more than" in read(book(tmp_path, first=[HEADER]))[1][0]


def test_a_document_type_is_refused(tmp_path: Path) -> None:
    dtd = '<!DOCTYPE worksheet [<!ENTITY a "aaaa">]>'
    sheet = f"{dtd}<worksheet {NAMESPACE}><sheetData>{HEAD}{row(2, '1', '&a;', 'b')}</sheetData></worksheet>"
    file = with_member(book(tmp_path, first=[HEADER]), SHEET, sheet)
    assert read(file) == ([], ["None: error: this file is not a workbook that can be read"])


def test_a_file_is_opened_once_while_it_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = book(tmp_path, first=[HEADER, [1, "好", "a"]])
    found = read(file)
    monkeypatch.setattr(workbooks, "COMMAND", ("false",))
    assert read(file) == found
    os.utime(file, ns=(0, 0))
    assert read(file) == ([], ["None: error: this file is not a workbook that can be read"])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.xlsx")
    assert "not a regular file" in read(tmp_path / "a.xlsx#first")[1][0]
    with pytest.raises(RecipeInvalidError, match="not a regular file"):
        profile(tmp_path / "a.xlsx#first")


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


def test_a_sheet_with_a_table_is_named_where_the_first_has_none(tmp_path: Path) -> None:
    rows = [["text", "label"], *([f"第{n}条评论说房间不错", "ab"[n % 2]] for n in range(8))]
    file = book(tmp_path, 说明=[["评论数据的说明"]], 其他=[["x"]], **{"数 据": rows})
    with pytest.raises(RecipeInvalidError) as error:
        look_at("train", file, SILENT)
    assert [one.fix for one in error.value.findings] == [f"the sheet `数 据` has a table: edgepack init '{file}#数 据'"]
    with pytest.raises(RecipeInvalidError) as error:
        look_at("train", book(tmp_path, 说明=[["评论数据的说明"]], 其他=[["x"]]), SILENT)
    assert "has a table" not in str(error.value.findings)
