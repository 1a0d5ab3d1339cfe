"""Text in the columns of a terminal, or of a log for which COLUMNS is set."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Iterator, Optional

LEAST = 40  # that COLUMNS may ask for
_WORD = re.compile("[\u4e00-\u9fff][，。；：、）”]*\\s*|[^\\s\u4e00-\u9fff]+\\s*|\\s+")  # or a Chinese character
_ROW = re.compile(r"(\S +  \S.*){2}")  # of a table, which is not wrapped


def width(text: str) -> int:
    """Columns of a terminal: two for a Chinese character."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def asked() -> Optional[int]:
    """The columns that the environment asks of a log; None without."""
    columns = os.environ.get("COLUMNS", "")
    return max(int(columns), LEAST) if columns.isdecimal() and int(columns) else None


def breaks(text: str, room: int) -> Iterator[int]:
    """Where lines of `room` columns go on, between words. A word that is longer stays whole."""
    used = 0
    for word in _WORD.finditer(text):
        if used and used + width(word[0].rstrip()) > room:
            yield word.start()
            used = 0
        used += width(word[0])


def wrapped(text: str, columns: Optional[int]) -> str:
    """Lines of `text` that go on between words, two columns to the right of where they begin; as they are with None."""
    return text if columns is None else "\n".join(_wrapped(line, columns) for line in text.split("\n"))


def _wrapped(line: str, columns: int) -> str:
    body = line.lstrip()
    margin = len(line) - len(body)
    if width(line) <= columns or _ROW.search(body):
        return line
    ends = [0, *breaks(body, columns - margin - 2), len(body)]
    parts = [body[begin:end].rstrip() for begin, end in zip(ends, ends[1:])]  # noqa: RUF007 - Python 3.8
    return " " * margin + f"\n{' ' * (margin + 2)}".join(parts)
