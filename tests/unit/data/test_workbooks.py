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


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text,label\n"])
def test_what_is_no_workbook_is_a_finding(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.xlsx").write_bytes(content)
    assert read(tmp_path / "a.xlsx") == ([], ["None: error: this file is not a workbook that can be read"])


def test_an_archive_of_another_kind_is_a_finding(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("a.txt", "x")
    assert read(tmp_path / "a.xlsx") == ([], ["None: error: this file is not a workbook that can be read"])
