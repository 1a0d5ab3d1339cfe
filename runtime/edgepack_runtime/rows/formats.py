"""Formats of files of rows, and the separators of tables."""

from __future__ import annotations

import csv
from pathlib import PurePath
from shlex import quote
from typing import Iterator, List, NamedTuple, Optional, Sequence

SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}
SAMPLE_ROWS = 200
_OF_CSV = (",", "\t", ";", "|")  # in the order of preference
_AGREEMENT = 0.9  # of the sampled lines must have as many fields as the first
_ONE_MAY_DIFFER = 4  # lines; a larger sample may hold broken lines

LINES, TABLE, JSON, TAGGED = "lines", "table", "JSON lines", "a token and its tag on each line"


class RowFormat(NamedTuple):
    """Format of a file.

    The separator of a table is None if its first lines show it. Fields of a `quoted` one are as in CSV. The encoding is
    a codec of Python.
    """

    kind: str
    separator: Optional[str] = None
    quoted: bool = False
    encoding: str = "utf-8"


BY_SUFFIX = {
    ".txt": RowFormat(LINES),
    ".tsv": RowFormat(TABLE, "\t"),
    ".csv": RowFormat(TABLE, None, quoted=True),
    ".jsonl": RowFormat(JSON),
}
SUFFIXES = tuple(BY_SUFFIX)
TABLES = (".tsv", ".csv")


def split_lines(lines: Sequence[str], separator: str, *, quoted: bool) -> Iterator[List[str]]:
    """The fields of each line, up to one that is not CSV."""
    if not quoted:
        yield from (line.split(separator) for line in lines)
        return
    try:
        yield from csv.reader(lines, delimiter=separator)
    except csv.Error:
        return  # the sample ends here


def likely_separator(lines: Sequence[str]) -> Optional[str]:
    """The separator that splits these lines into equally many fields, at least two; None if none does."""
    return next((one for one in SEPARATORS if _splits_alike(lines, one, quoted=one in ",;")), None)


def csv_separator(lines: Sequence[str]) -> str:
    """The separator of a .csv that begins with `lines`.

    Spreadsheet programs write semicolons where a comma is for decimals, and tabs as "Unicode text". The first line
    holds the separator; where it holds several, the lines decide, and the comma if they do not.
    """
    first = next(iter(lines), "")
    found = [one for one in _OF_CSV if one in first] or [","]
    return next((one for one in found if len(found) == 1 or _splits_alike(lines, one, quoted=True)), found[0])


def _splits_alike(lines: Sequence[str], separator: str, *, quoted: bool) -> bool:
    filled = [line.rstrip("\r\n") for line in lines if line.strip()]
    widths = [len(fields) for fields in split_lines(filled, separator, quoted=quoted)]
    others = len(widths) - widths.count(widths[0]) if widths else 0
    most = max((1 - _AGREEMENT) * len(widths), len(widths) >= _ONE_MAY_DIFFER)
    return bool(widths) and widths[0] > 1 and others <= most


def rename(name: str, suffix: str) -> str:
    """How to name a file by its format, to be typed."""
    return f"name it by what it is (in a recipe, too): mv {quote(name)} {quote(f'{PurePath(name).stem}{suffix}')}"
