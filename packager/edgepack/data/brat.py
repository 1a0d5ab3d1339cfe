"""Folders of brat: texts in `.txt` files, spans in the `.ann` of the same name; each line of a text is a row.

Format: https://brat.nlplab.org/standoff.html.
"""

from __future__ import annotations

import bisect
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgepack_runtime.rows.formats import JSON, RowFormat
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Record, Rows

_MOST_BYTES: Final = 64 << 20  # of a file
_SPAN: Final = re.compile(r"T\d+\t(\S+) ([\d ;]+)\t")
_OTHERS: Final = {"R": "relations", "*": "relations", "E": "events", "A": "attributes", "M": "attributes"}


def is_brat(folder: Path) -> bool:
    """Whether a path is a folder with files of brat."""
    return folder.is_dir() and any(folder.glob("*.ann"))


class BratRows(Rows):
    """The rows of a folder, each with its number; spans that cannot be read are errors in their place."""

    def __init__(self, folder: Path) -> None:
        super().__init__(io.BufferedReader(io.BytesIO()), folder.name, RowFormat(JSON))
        self._folder = folder

    def records(self) -> Iterator[Record]:
        number = 0
        for notes in sorted(self._folder.glob("*.ann")):
            for record in _document(notes):
                number += 1
                self.lines.number = number
                yield number, record


def _document(notes: Path) -> Iterator[dict[str, Any] | RowError]:
    """The lines of a text with their spans, as `text` and `spans`, and what cannot be read.

    Raises:
        OSError: a file cannot be read.
        RowError: a file is not UTF-8, or larger than a text is.
    """
    text = _read(notes.with_suffix(".txt"))
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    spans: dict[int, list[dict[str, Any]]] = {}
    for note in _read(notes).splitlines():
        found = _SPAN.match(note)
        if found is None:
            kind = _OTHERS.get(note[:1])
            if kind is not None:
                yield _left_out(f"has {kind} in {notes.name}, which are not learnt", kind)
            continue
        start, *_, end = map(int, re.findall(r"\d+", found[2]))
        place = bisect.bisect_right(begins, start) - 1
        if ";" in found[2] or place >= len(lines) or end > begins[place] + len(lines[place].rstrip("\r\n")):
            yield _left_out(f"has a span in {notes.name} that is not within one line: {note[:60]}", "spans")
            continue
        span = {"start": start - begins[place], "end": end - begins[place], "label": found[1]}
        spans.setdefault(place, []).append(span)
    for place, line in enumerate(lines):
        if line.strip():
            yield {"text": line.rstrip("\r\n"), "spans": spans.get(place, [])}


def _left_out(what: str, kind: str) -> RowError:
    return RowError(None, what, "the rows are read without it", kind=f"{kind} of brat", fatal=False)


def _read(file: Path) -> str:
    if file.stat().st_size > _MOST_BYTES:
        raise RowError(None, f"has a file of more than {_MOST_BYTES >> 20} MiB: {file.name}", "remove it")
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RowError(None, f"has a file that is not UTF-8: {file.name}", "convert it with iconv") from error
