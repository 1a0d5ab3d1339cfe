"""Sheets of Excel workbooks (.xlsx) as tables: the first one, or that of `file.xlsx#sheet`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.paths import WORKBOOK, on_disk, sheet_of
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Cells, Rows

_MOST_BYTES: Final = 1 << 30  # of all members, unpacked: a small archive may hold any number of zeros


class SheetRows(Rows):
    """The rows of a sheet. Their lines are the numbers that Excel shows."""

    def __init__(self, sheet: Any, name: str, row_format: RowFormat) -> None:
        super().__init__(io.BufferedReader(io.BytesIO()), name, row_format)
        self._sheet = sheet

    def cells(self) -> Iterator[Cells]:
        width = 0  # a sheet has as many columns as its widest row, though nothing is written there
        for line, row in enumerate(self._sheet.iter_rows(values_only=True), start=1):
            fields = list(map(_text, row))
            while fields and not fields[-1] and (len(fields) > width or not any(fields)):
                fields.pop()
            width = width or len(fields)
            self.lines.number = self.last = line
            yield line, fields


def _text(value: object) -> str:
    """A cell as Excel shows it: whole numbers without a fraction, dates as ISO 8601 writes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


@contextmanager
def opened_sheet(file: Path, row_format: RowFormat) -> Iterator[SheetRows]:
    """The rows of a sheet.

    Raises:
        RowError: the file is not a workbook, or has no such sheet.
        OSError: it cannot be read.
    """
    from openpyxl import load_workbook

    path, name = on_disk(file), sheet_of(file)
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise RowError(None, f"has more than {_MOST_BYTES >> 30} GiB unpacked", "save its rows as .csv")
        book = load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise RowError(None, "is not a workbook that can be read", "save it as .xlsx again, or as .csv") from error
    try:
        yield SheetRows(_sheet(book, name), file.name, row_format)
    finally:
        book.close()


def _sheet(book: Any, name: str) -> Any:
    names: Sequence[str] = book.sheetnames
    if name and name not in names:
        fix = did_you_mean(name, names, f"the sheets are {listed(names)}")
        raise RowError(None, f"has no sheet `{name}`", fix)
    return book[name or names[0]]


def other_sheets(file: Path) -> list[str]:
    """The sheets that are not read where `file` names none."""
    from openpyxl import load_workbook

    if file.suffix.lower() != WORKBOOK or sheet_of(file):
        return []
    book = load_workbook(file, read_only=True)
    try:
        return [str(name) for name in book.sheetnames[1:]]
    finally:
        book.close()
