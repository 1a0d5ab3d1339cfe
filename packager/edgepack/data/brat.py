"""Folders of brat: texts in `.txt` files, spans in the `.ann` of the same name; each line of a text is a row.

Format: https://brat.nlplab.org/standoff.html.
"""

from __future__ import annotations

import bisect
import io
import itertools
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgepack.util import confined_files
from edgepack_runtime.rows.formats import JSON, RowFormat
from edgepack_runtime.rows.lines import MAX_LINE_BYTES, RowError
from edgepack_runtime.rows.reader import Record, Rows

_MOST_BYTES: Final = MAX_LINE_BYTES  # of a file, and so of each line
_MOST_FOLDER_BYTES: Final = 1 << 30
# Such files have offsets of fewer digits. int refuses thousands of them.
_SPAN: Final = re.compile(r"T\d+\t(\S+) (\d{1,9} (?:\d{1,9};\d{1,9} )*\d{1,9})\t", re.ASCII)
_PAIRS: Final = f"each .ann needs a .txt, both regular files of at most {_MOST_BYTES >> 20} MiB in the folder"
_OTHERS: Final = {"R": "relations", "*": "relations", "E": "events", "A": "attributes", "M": "attributes"}


def is_brat(folder: Path) -> bool:
    """Whether a path is a folder with files of brat."""
    return folder.is_dir() and any(folder.glob("*.ann"))


class BratRows(Rows):
    """The rows of a folder, each with its number; spans that cannot be read are errors in their place."""

    def __init__(self, folder: Path) -> None:
        super().__init__(io.BufferedReader(io.BytesIO()), folder.name, RowFormat(JSON))
        self._folder, self._read_bytes = folder, 0

    def records(self) -> Iterator[Record]:
        number = 0
        for notes in sorted(self._folder.glob("*.ann")):
            for record in self._document(notes):
                number += 1
                self.lines.number = number
                yield number, record

    def _document(self, notes: Path) -> Iterator[dict[str, Any] | RowError]:
        """The lines of a text with their spans, as `text` and `spans`, and what cannot be read.

        Raises:
            RowError: a file cannot be read, is not UTF-8, or is larger than a text is.
        """
        lines = self._read(notes.with_suffix(".txt").name).splitlines(keepends=True)
        begins = array("Q", itertools.accumulate(map(len, lines), initial=0))
        ends = array("Q", (begin + len(line.rstrip("\r\n")) for begin, line in zip(begins, lines, strict=False)))
        spans: dict[int, list[dict[str, Any]]] = {}
        for note in self._read(notes.name).splitlines():
            found = _SPAN.match(note)
            if found is None:
                kind = _OTHERS.get(note[:1])
                if kind is not None:
                    yield _left_out(f"has {kind} in {notes.name}, which are not learnt", kind)
                elif note.startswith("T"):
                    yield _left_out(f"has a span in {notes.name} without a label, a start and an end: {note[:60]}")
                continue
            start, *between, end = map(int, re.split("[ ;]", found[2]))
            place = bisect.bisect_right(begins, start) - 1
            if between or place >= len(lines) or end > ends[place]:
                yield _left_out(f"has a span in {notes.name} that is not within one line: {note[:60]}")
                continue
            span = {"start": start - begins[place], "end": end - begins[place], "label": found[1]}
            spans.setdefault(place, []).append(span)
        for place, line in enumerate(lines):
            if line.strip():
                yield {"text": line.rstrip("\r\n"), "spans": spans.get(place, [])}

    def _read(self, name: str) -> str:
        try:
            raw = confined_files.read(self._folder, name, _MOST_BYTES)
        except OSError as error:
            why = f"{name}: {error.strerror or error}"
            raise RowError(None, f"has a file that cannot be read: {why}", _PAIRS) from error
        except ValueError as error:
            raise RowError(None, f"has a file that cannot be read: {error}", _PAIRS) from error
        self._read_bytes += len(raw)
        if self._read_bytes > _MOST_FOLDER_BYTES:
            raise RowError(None, f"has more than {_MOST_FOLDER_BYTES >> 30} GiB of files", "read it in several parts")
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RowError(None, f"has a file that is not UTF-8: {name}", "convert it with iconv") from error


def _left_out(what: str, kind: str = "spans") -> RowError:
    return RowError(None, what, "the rows are read without it", kind=f"{kind} of brat", fatal=False)
