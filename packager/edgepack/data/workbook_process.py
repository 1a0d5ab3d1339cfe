"""Process that reads one sheet of a workbook, with limits: a small file can make openpyxl take hours or all memory.

`python -m edgepack.data.workbook_process SHEET` reads a workbook from standard input and writes lines of JSON: an
object with the names of its sheets, then the cells of each row as a list. An object behind them is an error.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import IO, Any, Final
from xml.parsers import expat

from edgepack_runtime.rows.lines import MAX_LINE_BYTES
from edgepack_runtime.rows.table import MOST_COLUMNS

MOST_CPU_S: Final = 60
MOST_MEMORY_BYTES: Final = 2 << 30
MOST_WRITTEN_BYTES: Final = 256 << 20
NO_WORKBOOK: Final = ("is not a workbook that can be read", "save it as .xlsx again, or as .csv")
LIMITS: Final = {
    resource.RLIMIT_CPU: MOST_CPU_S,
    resource.RLIMIT_DATA: MOST_MEMORY_BYTES,
    resource.RLIMIT_FSIZE: MOST_WRITTEN_BYTES,
    resource.RLIMIT_CORE: 0,
}
_MOST_ROWS: Final = 1 << 20  # that Excel has
_BLOCK_BYTES: Final = 1 << 12
_OF_OUTPUT: Final = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _UnreadableError(Exception):
    """The rest of the sheet is not read: what, and a fix."""


def main() -> int:
    """Entry point. Returns 0, or the number of the system's error that ended it."""
    for limit, most in LIMITS.items():
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    # openpyxl can do without both, and starts in half the time. lxml hides that memory was refused.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    os.environ["OPENPYXL_LXML"] = "False"
    out, problem = sys.stdout.buffer, None
    try:
        for line in _lines(sys.stdin.buffer, sys.argv[1]):
            out.write(line)
    except MemoryError:
        return errno.ENOMEM
    except _UnreadableError as error:
        problem = error.args
    except Exception as error:  # noqa: BLE001 - openpyxl raises what the XML makes it: KeyError, zlib.error, ...
        if isinstance(error, OSError) and error.errno in _OF_OUTPUT:
            return error.errno
        if "out of memory" in str(error):  # as expat says it
            return errno.ENOMEM
        problem = NO_WORKBOOK
    try:
        if problem is not None:
            out.write(_line(error_line(*problem)))
        out.flush()
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def error_line(what: str, fix: str) -> dict[str, str]:
    """What is written in place of the rows that were not read."""
    return {"what": what, "fix": fix}


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    from openpyxl import load_workbook

    _refuse_dtd(file)
    book = load_workbook(file, read_only=True, data_only=True)
    visible = [sheet.title for sheet in book.worksheets if sheet.sheet_state == "visible"]
    yield _line({"sheets": book.sheetnames, "visible": visible})
    name = name or next(iter(visible), "")
    if name not in book.sheetnames:
        return
    sheet = book[name]
    sheet.reset_dimensions()  # which a program may write before the rows, and wrongly
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > _MOST_ROWS or len(row) > MOST_COLUMNS:
            what = f"has a row or a column beyond {_MOST_ROWS:,} and {MOST_COLUMNS:,}, which are read"
            raise _UnreadableError(what, "save the rows that are used as .csv")
        line = _line(list(map(_text, row)))
        if len(line) > MAX_LINE_BYTES:
            raise _UnreadableError(f"has a row of more than {MAX_LINE_BYTES >> 20} MiB: {number}", "shorten its texts")
        yield line


def _text(value: object) -> str:
    """A cell as Excel shows it: whole numbers without a fraction, dates as ISO 8601 writes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _refuse_dtd(file: IO[bytes]) -> None:
    """Refuse XML with a document type, which Excel never writes: its entities make much of little text.

    Raises:
        _UnreadableError: a file of the archive has one.
    """
    is_begun = False

    def refuse(*_: Any) -> None:
        raise _UnreadableError(*NO_WORKBOOK)

    def begin(*_: Any) -> None:
        nonlocal is_begun
        is_begun = True

    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            is_begun = False
            parser = expat.ParserCreate()
            parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse, begin
            try:
                with archive.open(member) as stream:
                    while not is_begun and (block := stream.read(_BLOCK_BYTES)):
                        parser.Parse(block)
            except expat.ExpatError:
                continue  # an image, or what openpyxl refuses, too


if __name__ == "__main__":
    os._exit(main())  # what could not be written is not tried again
