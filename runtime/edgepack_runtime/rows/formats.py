"""Formats of files of rows, and the separators of tables."""

from __future__ import annotations

import csv
import re
from pathlib import PurePath
from shlex import quote
from typing import Iterator, List, NamedTuple, Optional, Sequence

SEPARATORS = {"\t": "rows.tabs", ",": "rows.commas", ";": "rows.semicolons", "|": "rows.bars"}  # with messages
SAMPLE_ROWS = 200
_OF_CSV = (",", "\t", ";", "|")  # in the order of preference
_SAID = re.compile(r'"?sep=([\t,;|])"?', re.IGNORECASE)
_AGREEMENT = 0.9  # of the sampled lines must have as many fields as the first
_ONE_MAY_DIFFER = 4  # lines; a larger sample may hold broken lines

LINES, TABLE, JSON, TAGGED = "lines", "table", "JSON", "a token and its tag on each line"


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
    ".json": RowFormat(JSON),
}
SUFFIXES = tuple(BY_SUFFIX)
OUTPUT_SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
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
    if lines and (said := _SAID.fullmatch(lines[0].rstrip("\r\n"))):
        return said[1]
    quoted = [one for one in SEPARATORS if one in ",;" or _looks_quoted(lines, one)]
    return next((one for one in SEPARATORS if _splits_alike(lines, one, quoted=one in quoted)), None)


class Dialect(NamedTuple):
    """How the fields of a table are separated and quoted. The first line may tell it: `sep=;`, as Excel reads it."""

    separator: str
    quoted: bool
    escaped: bool  # a quote in a field is `\\"`, as MySQL writes it, besides `""`
    is_said: bool


def dialect_of(lines: Sequence[str], row_format: RowFormat) -> Dialect:
    """The dialect of a table that begins with `lines`; its format may leave the separator open."""
    said = _SAID.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    lines = lines[1:] if said else lines
    separator = said[1] if said else row_format.separator or _csv_separator(lines)
    quoted = row_format.quoted or said is not None or _looks_quoted(lines, separator)
    escaped = quoted and any('\\"' in line for line in lines) and not is_csv(lines, separator)
    return Dialect(separator, quoted, escaped and is_csv(lines, separator, escape="\\"), said is not None)


def _csv_separator(lines: Sequence[str]) -> str:
    """The separator of a .csv that begins with `lines`.

    Spreadsheet programs write semicolons where a comma is for decimals, and tabs as "Unicode text". The first line with
    content holds the separator; where it holds several, the lines decide, and the comma if they do not.
    """
    first = next(filter(str.strip, lines), "")
    found = [one for one in _OF_CSV if one in first] or [","]
    return next((one for one in found if len(found) == 1 or _splits_alike(lines, one, quoted=True)), found[0])


def _looks_quoted(lines: Sequence[str], separator: str) -> bool:
    """Whether each name in the first line is in quotes: so are the fields below. No text below can say that."""
    first = next((line.rstrip("\r\n") for line in lines if line.strip()), "")
    return bool(first) and all(name[:1] == name[-1:] == '"' != name for name in first.split(separator))


def is_csv(lines: Sequence[str], separator: str, escape: Optional[str] = None) -> bool:
    """Whether these lines, of which the last row may be cut, are rows of equal length."""
    filled = [line for line in lines if line.strip()]
    widths = set()
    try:
        for row in csv.reader((f"{line}\n" for line in filled), delimiter=separator, escapechar=escape, strict=True):
            widths.add(len(row))
    except csv.Error as error:
        if "unexpected end" not in str(error):
            return False
    return len(widths) == 1 and widths != {1}


def _splits_alike(lines: Sequence[str], separator: str, *, quoted: bool) -> bool:
    filled = [line.rstrip("\r\n") for line in lines if line.strip()]
    widths = [len(fields) for fields in split_lines(filled, separator, quoted=quoted)]
    others = len(widths) - widths.count(widths[0]) if widths else 0
    most = max((1 - _AGREEMENT) * len(widths), len(widths) >= _ONE_MAY_DIFFER)
    return bool(widths) and widths[0] > 1 and others <= most


def in_quotes(field: str) -> str:
    """A field of a table in quotes; each quote in it is doubled."""
    return '"{}"'.format(field.replace('"', '""'))


def rename(name: str, suffix: str) -> str:
    """How to name a file by its format, to be typed."""
    return f"name it by what it is (in a recipe, too): mv {quote(name)} {quote(f'{PurePath(name).stem}{suffix}')}"
