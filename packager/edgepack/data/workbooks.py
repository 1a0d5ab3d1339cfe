"""Sheets of Excel workbooks (.xlsx) as tables: the first one, or that of `file.xlsx#sheet`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.paths import is_workbook, on_disk, sheet_of
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Cells, Rows
from edgepack_runtime.rows.table import MOST_COLUMNS

_MOST_BYTES: Final = 128 << 20  # of all members, unpacked: a small archive may hold any number of zeros
_MOST_LEVELS: Final = 64  # of elements in each other; a sheet has about ten
_MOST_ROWS: Final = 1 << 20  # that Excel has
_NO_WORKBOOK: Final = ("is not a workbook that can be read", "save it as .xlsx again, or as .csv")


class SheetRows(Rows):
    """The rows of a sheet. Their lines are the numbers that Excel shows."""

    def __init__(self, sheet: Any, name: str, row_format: RowFormat) -> None:
        super().__init__(io.BufferedReader(io.BytesIO()), name, row_format)
        self._sheet = sheet

    def cells(self) -> Iterator[Cells]:
        width = 0  # a sheet has as many columns as its widest row, though nothing is written there
        with _readable():
            for line, row in enumerate(self._sheet.iter_rows(values_only=True), start=1):
                if line > _MOST_ROWS or len(row) > MOST_COLUMNS:
                    what = f"has a row or a column beyond {_MOST_ROWS:,} and {MOST_COLUMNS:,}, which are read"
                    raise RowError(None, what, "save the rows that are used as .csv")
                fields = list(map(_text, row))
                while fields and not fields[-1] and (len(fields) > width or not any(fields)):
                    fields.pop()
                width = width or len(fields)
                self.lines.number = self.last = line
                yield line, fields


@contextmanager
def _readable() -> Iterator[None]:
    """Turn whatever openpyxl raises about a damaged workbook into one error.

    Raises:
        RowError: it cannot be read.
    """
    try:
        yield
    except (RowError, OSError, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # its parsers raise what the XML makes them: KeyError, TypeError, zlib.error, ...
        raise RowError(None, *_NO_WORKBOOK) from error


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
    with _readable():
        _require_plain(path)
        book = load_workbook(path, read_only=True, data_only=True)
    try:
        with _readable():
            sheet = _sheet(book, name)
            sheet.reset_dimensions()  # which a program may write before the rows, and wrongly
        yield SheetRows(sheet, file.name, row_format)
    finally:
        book.close()


def _require_plain(path: Path) -> None:
    """Check the size of an archive, and how deep its XML is, before a parser keeps it.

    Raises:
        RowError: it is too large or too deep.
    """
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith((".xml", ".rels"))]
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
            raise RowError(None, f"has more than {_MOST_BYTES >> 20} MiB unpacked", "save its rows as .csv")
        for member in members:
            _require_shallow(archive, member)


def _require_shallow(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    depth = 0

    def begin(name: str, attributes: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST_LEVELS:
            raise RowError(None, *_NO_WORKBOOK)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    with archive.open(member) as stream:
        parser.ParseFile(stream)


def _sheet(book: Any, name: str) -> Any:
    names = _visible(book)
    if name:
        if name not in book.sheetnames:
            fix = did_you_mean(name, book.sheetnames, f"the sheets are {listed(book.sheetnames)}")
            raise RowError(None, f"has no sheet `{name}`", fix)
        return book[name]
    if not names:
        raise RowError(None, "has no sheet that is visible", "name one, as in file.xlsx#sheet")
    return book[names[0]]


def _visible(book: Any) -> Sequence[str]:
    return [sheet.title for sheet in book.worksheets if sheet.sheet_state == "visible"]


def other_sheets(file: Path) -> list[str]:
    """The sheets that are not read where `file` names none."""
    from openpyxl import load_workbook

    if not is_workbook(file) or sheet_of(file):
        return []
    book = load_workbook(file, read_only=True)
    try:
        return [str(name) for name in _visible(book)[1:]]
    finally:
        book.close()
