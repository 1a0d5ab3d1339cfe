"""Detection of stray quotes in CSV files.

A stray quote opens a field, and all rows up to the next quote become its text, which the csv module reads without an
error. Such a field is recognised by its lines, which look like rows of the table.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import Final

from edgepack.recipe.finding_log import FindingLog

MOST_LINES: Final = 20  # of a field without a warning; a longer field is a long document, or has a stray quote
# Every row up to this line is sampled, and one of so many after it: to sample all rows makes reading 7 % slower.
REMEMBERED_FIRST: Final = 50
REMEMBERED_EVERY: Final = 16
_REMEMBERED: Final = 200  # latest rows
_FEW: Final = 20  # rows; with fewer, the lines of a field are compared with each other too
_FEWEST_LINES: Final = 3  # of a field that may hold rows; of two lines only one can be a complete row
_MIN_EVIDENCE: Final = 2  # lines that look like rows; one may be chance
_MIN_SUSPECTS: Final = 3  # fields that may hold one row each, before they are reported
_RECURRENCE: Final = 2  # mean repetitions of a value in a column of labels
_LONGEST: Final = 40  # characters of a value that are compared
_LOOK: Final = "see whether it is one text; if not, remove the quote that opens it and the one that closes it"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")

_Place = tuple[int, str]  # column from 0, and its value


class Quotes:
    """Detector of stray quotes in one CSV file with this separator, which sees its rows one by one."""

    def __init__(self, separator: str, log: FindingLog) -> None:
        self._separator, self._log = separator, log
        self._rows: deque[list[str]] = deque(maxlen=_REMEMBERED)
        self._width = 0  # of the first row
        self._known: frozenset[_Place] = frozenset()
        self._use_known = 0  # uses before it is computed again
        self._suspects: list[int] = []  # lines of fields that may hold one row

    def remember(self, fields: Sequence[str]) -> None:
        """Record a row on one line."""
        self._width = self._width or len(fields)
        self._rows.append([field[:_LONGEST] for field in fields])
        if len(self._rows) <= _FEW:  # each of few rows counts
            self._use_known = 0

    def hold(self, first: int, last: int, fields: Sequence[str]) -> bool:
        """Whether a field holds rows. That, and a field of many lines, is logged as a finding.

        Args:
            first: line, from 1, on which the row of `fields` starts.
            last: line on which it ends.
        """
        for column, field in enumerate(fields):
            lines = (field.count("\n") or field.count("\r")) + 1  # a table of an old Mac has `\r` alone
            if lines < _FEWEST_LINES:
                if lines > 1 and self._holds_a_row(field, column, len(fields) - column - 1):
                    self._suspect(first)
                continue
            if self._may_be_rows(field) and self._are_rows(field, column, len(fields) - column - 1):
                reason = f"a quote opens a field of {lines} lines, up to line {last}: they look like rows"
                fix = "remove the stray quotes, there and where the field ends; if it is one text, write it as .jsonl"
                self._log.end("broken CSV", first, reason, fix)
                return True
            if lines > MOST_LINES:
                reason = f"a field in quotes has {lines} lines, up to line {last}"
                self._log.add("fields of many lines", "warning", first, reason, _LOOK)
        if len(self._rows) < _FEW:  # a short table has few rows on one line to compare with
            self.remember(fields)
        return False

    def _suspect(self, first: int) -> None:
        """Count a field that may hold one row: a single text may look like a row, several hardly do."""
        self._suspects.append(first)
        if len(self._suspects) < _MIN_SUSPECTS:
            return
        for line in self._suspects if len(self._suspects) == _MIN_SUSPECTS else [first]:
            reason = "a quote opens a field of 2 lines, and one of them reads like a whole row"
            self._log.add("fields that read like rows", "warning", line, reason, _LOOK)

    def _holds_a_row(self, field: str, before: int, after: int) -> bool:
        """Whether the first of two lines completes a row, or the second begins one, with a known label."""
        start, end = (line.split(self._separator) for line in _LINE_END.split(field, maxsplit=1))
        first = len(start) > 1 and before + len(start) == self._width
        last = len(end) > 1 and len(end) + after == self._width
        places = set(enumerate(start[1:], before + 1)) if first else set()
        places |= set(enumerate(end[:-1])) if last else set()
        return bool(places) and not self._labels([]).isdisjoint(places)

    def _may_be_rows(self, field: str) -> bool:
        """A quick test that most texts of several lines fail: an inner line has as many fields as a row."""
        start, end = field.find("\n"), field.rfind("\n")
        if start < 0:  # other line ends
            return True
        wanted = self._width - 1
        if field.count(self._separator, start, field.find("\n", start + 1)) == wanted:
            return True
        return field.count(self._separator, field.rfind("\n", 0, end), end) == wanted

    def _are_rows(self, field: str, before: int, after: int) -> bool:
        """Whether most lines of a field have as many fields as a row, and one of them holds a known label.

        `before` and `after` are the numbers of fields around it; these belong to its first and last line, and do not
        count.
        """
        width, lines = self._width, _LINE_END.split(field)
        within = [line.count(self._separator) for line in lines]  # one less than the fields of each line
        first = before + within[0] == width - 1 and within[0] > 0
        last = within[-1] + after == width - 1 and within[-1] > 0
        # The first and the last line hold parts of rows: of the others, but for blank ones, half must look like rows.
        needed = max(_MIN_EVIDENCE, (len(lines) - 1 - lines.count("")) / 2)
        if width < 2 or within[1:-1].count(width - 1) + first + last < needed:
            return False
        alike = [
            line.split(self._separator)
            for line, separators in zip(lines[1:-1], within[1:-1], strict=True)
            if separators == width - 1
        ]
        rows = [frozenset(enumerate(row)) for row in alike]
        rows += [frozenset(enumerate(lines[0].split(self._separator)[1:], before + 1))] if first else []
        rows += [frozenset(enumerate(lines[-1].split(self._separator)[:-1]))] if last else []
        known = self._labels(alike)
        return sum(not known.isdisjoint(row) for row in rows) >= needed

    def _labels(self, alike: Sequence[list[str]]) -> frozenset[_Place]:
        """Repeated values of the recorded rows; if these are few, also of lines with as many fields as a row."""
        if alike and len(self._rows) < _FEW:
            return _recurring([*self._rows, *alike])
        if not self._use_known:
            self._known, self._use_known = _recurring(self._rows), _REMEMBERED
        self._use_known -= 1
        return self._known


def _recurring(rows: Collection[list[str]]) -> frozenset[_Place]:
    """Repeated values of columns with few different values, such as labels."""
    found: set[_Place] = set()
    for column in range(max(map(len, rows), default=0)):
        counts = Counter(row[column] for row in rows if len(row) > column)
        if counts.total() >= _RECURRENCE * len(counts):
            found.update((column, value) for value, times in counts.items() if times > 1 and value.strip())
    return frozenset(found)
