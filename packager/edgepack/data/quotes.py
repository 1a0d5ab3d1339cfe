"""A quote that was never meant as one opens a field, and all rows up to the next such quote become its text.

The csv module reads that without an error. What gives it away are the lines of the field: they are rows of the table.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import Final

from edgepack.data.finding_log import FindingLog

MOST_LINES: Final = 20  # of a field that needs no word; more is a long document, or a quote too many
# Lines up to which each row shows what rows of the table are like, and how many each stands for after that: to take
# note of all would make reading slower by a fourteenth.
REMEMBERED_FIRST: Final = 50
REMEMBERED_EVERY: Final = 16
_REMEMBERED: Final = 200  # rows, the latest
_FEW: Final = 20  # rows that show little yet: the lines are compared with each other too, then
_FEWEST_LINES: Final = 3  # of a field that may hold rows: of two, only one is a row for certain
_MIN_EVIDENCE: Final = 2  # lines that look like rows; a single one may be chance
_MIN_SUSPECTS: Final = 3  # fields that may hold one row each, from which on they are told
_RECURRENCE: Final = 2  # how often, on average, a value comes in a column of labels
_LONGEST: Final = 40  # characters of a value that are compared
_LOOK: Final = "see whether it is one text; if not, remove the quote that opens it and the one that closes it"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")

_Place = tuple[int, str]  # a column from 0, and what stands in it


class Quotes:
    """Watches the rows of one CSV file go by; `separator` stands between their fields."""

    def __init__(self, separator: str, log: FindingLog) -> None:
        self._separator, self._log = separator, log
        self._rows: deque[list[str]] = deque(maxlen=_REMEMBERED)
        self._width = 0  # of the first row
        self._known: frozenset[_Place] = frozenset()
        self._use_known = 0  # times before it is made anew
        self._suspects: list[int] = []  # lines of fields that may hold one row

    def remember(self, fields: Sequence[str]) -> None:
        """Take note of a row that stands on a line of its own."""
        self._width = self._width or len(fields)
        self._rows.append([field[:_LONGEST] for field in fields])

    def hold(self, first: int, last: int, fields: Sequence[str]) -> bool:
        """Whether a field holds rows; that, and a field of many lines, is noted in the log.

        Args:
            first: line, from 1, on which the row of `fields` starts.
            last: line on which it ends.
        """
        for column, field in enumerate(fields):
            lines = (field.count("\n") or field.count("\r")) + 1
            if lines < _FEWEST_LINES:
                if lines > 1 and self._holds_a_row(field, fields[:column], fields[column + 1 :]):
                    self._suspect(first)
                continue
            if self._may_be_rows(field) and self._are_rows(field, fields[:column], fields[column + 1 :]):
                reason = f"a quote opens a field of {lines} lines, up to line {last}: they look like rows"
                fix = "remove the stray quotes, there and where the field ends; if it is one text, write it as .jsonl"
                self._log.end("broken CSV", first, reason, fix)
                return True
            if lines > MOST_LINES:
                reason = f"a field in quotes has {lines} lines, up to line {last}"
                self._log.add("fields of many lines", "warning", first, reason, _LOOK)
        if len(self._rows) < _FEW:
            self.remember(fields)
        return False

    def _suspect(self, first: int) -> None:
        """Note a field that may hold one row: a text may happen to read so, and some texts do not all happen to."""
        self._suspects.append(first)
        if len(self._suspects) < _MIN_SUSPECTS:
            return
        for line in self._suspects if len(self._suspects) == _MIN_SUSPECTS else [first]:
            reason = "a quote opens a field of 2 lines, and one of them reads like a whole row"
            self._log.add("fields that read like rows", "warning", line, reason, _LOOK)

    def _holds_a_row(self, field: str, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether the first of two lines completes a row, or the second begins one, with what is known as a label."""
        start, end = (line.split(self._separator) for line in _LINE_END.split(field, maxsplit=1))
        first = len(start) > 1 and len(before) + len(start) == self._width
        last = len(end) > 1 and len(end) + len(after) == self._width
        places = set(enumerate(start[1:], len(before) + 1)) if first else set()
        places |= set(enumerate(end[:-1])) if last else set()
        return bool(places) and not self._labels([]).isdisjoint(places)

    def _may_be_rows(self, field: str) -> bool:
        """A quick no to most texts of several lines: the second line or the last but one is cut into as many fields."""
        start, end = field.find("\n"), field.rfind("\n")
        if start < 0:  # the lines end in another way
            return True
        wanted = self._width - 1
        if field.count(self._separator, start, field.find("\n", start + 1)) == wanted:
            return True
        return field.count(self._separator, field.rfind("\n", 0, end), end) == wanted

    def _are_rows(self, field: str, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether most lines of a field have as many fields as a row, and one of them holds what is known as a label.

        What stands `before` and `after` the field in its row is part of its first and last line, and proves nothing.
        """
        width, lines = self._width, _LINE_END.split(field)
        within = [line.count(self._separator) for line in lines]  # one less than the fields of each line
        first = len(before) + within[0] == width - 1 and within[0] > 0
        last = within[-1] + len(after) == width - 1 and within[-1] > 0
        needed = max(_MIN_EVIDENCE, (len(lines) - 1 - lines.count("")) / 2)
        if width < 2 or within[1:-1].count(width - 1) + first + last < needed:
            return False
        alike = [
            line.split(self._separator)
            for line, separators in zip(lines[1:-1], within[1:-1], strict=True)
            if separators == width - 1
        ]
        rows = [frozenset(enumerate(row)) for row in alike]
        rows += [frozenset(enumerate(lines[0].split(self._separator)[1:], len(before) + 1))] if first else []
        rows += [frozenset(enumerate(lines[-1].split(self._separator)[:-1]))] if last else []
        known = self._labels(alike)
        return sum(not known.isdisjoint(row) for row in rows) >= needed

    def _labels(self, alike: Sequence[list[str]]) -> frozenset[_Place]:
        """What recurs in the rows before; where they are few, in them and the lines that are cut like rows."""
        if len(self._rows) < _FEW:
            return _recurring([*self._rows, *alike])
        if not self._use_known:
            self._known, self._use_known = _recurring(self._rows), _REMEMBERED
        self._use_known -= 1
        return self._known


def _recurring(rows: Collection[list[str]]) -> frozenset[_Place]:
    """The values that come again of columns that hold few different ones, as those of labels do."""
    found: set[_Place] = set()
    for column in range(max(map(len, rows), default=0)):
        counts = Counter(row[column] for row in rows if len(row) > column)
        if counts.total() >= _RECURRENCE * len(counts):
            found.update((column, value) for value, times in counts.items() if times > 1 and value.strip())
    return frozenset(found)
