"""Sheets of Excel workbooks (.xlsx) as tables: the first one, or that of `file.xlsx#sheet`."""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from edgepack.data.workbook_process import MOST_CPU_S, MOST_MEMORY_BYTES, NO_WORKBOOK, error_line
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.paths import is_workbook, on_disk, sheet_of
from edgepack.util.process import ended_with_block
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Cells, Rows
from edgepack_runtime.util.fs import open_regular, temporary_base

COMMAND: Final = (sys.executable, "-I", "-m", "edgepack.data.workbook_process")
MOST_WALL_S: Final = 120.0  # a process may wait for a disk, or for other processes
_MOST_KEPT: Final = 8  # sheets that were read, which take space for temporary files
_OF_LIMITS: Final = (errno.ENOMEM, errno.EFBIG, -signal.SIGXCPU, -signal.SIGKILL)
_TOO_LARGE: Final = (
    f"takes more than {MOST_CPU_S} s or {MOST_MEMORY_BYTES >> 30} GiB to open",
    "save the sheet as .csv",
)


class SheetRows(Rows):
    """The rows of a sheet. Their lines are the numbers that Excel shows."""

    def __init__(self, rows: Iterator[Any], name: str, row_format: RowFormat) -> None:
        super().__init__(io.BufferedReader(io.BytesIO()), name, row_format)
        self._rows = rows

    def cells(self) -> Iterator[Cells]:
        width = 0  # of the first row; a row ends with its last cell, and cells without a header are notes
        for line, fields in enumerate(self._rows, start=1):
            filled = next((place for place in range(len(fields), 0, -1) if fields[place - 1]), 0)
            width = width or filled
            fields[min(filled, width) :] = [""] * (width - filled if filled else 0)
            self.lines.number = self.last = line
            yield line, fields


def opened_sheet(file: Path, row_format: RowFormat) -> SheetRows:
    """The rows of a sheet.

    Raises:
        RowError: the file is not a workbook, or has no such sheet; also when rows are read.
        OSError: it cannot be read.
    """
    lines, name = _lines(file), sheet_of(file)
    sheets = next(lines)
    if name and name not in sheets["sheets"]:
        fix = did_you_mean(name, sheets["sheets"], f"the sheets are {listed(sheets['sheets'])}")
        raise RowError(None, f"has no sheet `{name}`", fix)
    if not name and not sheets["visible"]:
        raise RowError(None, "has no sheet that is visible", "name one, as in file.xlsx#sheet")
    return SheetRows(lines, file.name, row_format)


def other_sheets(file: Path) -> list[str]:
    """The sheets that are not read where `file` names none."""
    if not is_workbook(file) or sheet_of(file):
        return []
    return list(next(_lines(file))["visible"][1:])


def _lines(file: Path) -> Iterator[Any]:
    """What the process wrote about a sheet: the names of all sheets, then the cells of each row.

    Raises:
        RowError: the sheet cannot be read from here on.
    """
    path = on_disk(file).resolve()
    state = path.stat()
    written, begin = _written(path, sheet_of(file), state.st_size, state.st_mtime_ns), 0
    while (end := written.find(b"\n", begin)) >= 0:
        found = json.loads(written[begin:end])
        if isinstance(found, dict) and "what" in found:
            raise RowError(None, found["what"], found["fix"])
        yield found
        begin = end + 1


@lru_cache(_MOST_KEPT)  # a command reads its files several times
def _written(path: Path, sheet: str, size: int, mtime_ns: int) -> mmap.mmap:
    """What the process writes about a sheet of the file that has this size and time."""
    with open_regular(path) as book, TemporaryFile(dir=temporary_base()) as out:
        with ended_with_block([*COMMAND, sheet], stdin=book, stdout=out, stderr=subprocess.DEVNULL) as process:
            try:
                code = process.wait(MOST_WALL_S)
            except subprocess.TimeoutExpired:
                code = -signal.SIGKILL
        if code > 1 and code not in _OF_LIMITS:
            raise OSError(code, os.strerror(code))
        if code:
            out.truncate(0)
            out.seek(0)
            out.write(json.dumps(error_line(*(_TOO_LARGE if code in _OF_LIMITS else NO_WORKBOOK))).encode() + b"\n")
            out.flush()
        return mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ)
