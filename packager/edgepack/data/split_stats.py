"""Statistics of one pass over a split: 26 bytes a row to compare rows, counts of labels and lengths, findings.

For rows with any number of labels or spans it is 34 bytes, with a digest of them; with a number, 42.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgepack.artifacts import Row
from edgepack.data.files import no_progress
from edgepack.data.lengths import Lengths
from edgepack.data.tables import read_rows
from edgepack.errors import StageFailedError
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import errors
from edgepack.recipe.model import Columns, LabelSeparator, SplitName
from edgepack.util.text_digests import digest, digests, normalise
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.schema.maxima import MAX_LABELS
from edgepack_runtime.tasks.task import Task


@dataclass
class SplitFacts:
    """Statistics of one split for `check_splits`. Texts are kept as digests of 8 bytes (`text_digests`).

    `label_rows` has the number of rows of each label, in the order of first occurrence, and `label_lines` the line of
    the first occurrence. `most_labels` is the maximum number of labels or spans of a row, and `all_labels` their sum;
    neither is counted if each row has one label.
    """

    name: SplitName
    file: Path
    log: FindingLog
    columns: Columns = field(default_factory=Columns)
    lengths: Lengths = field(default_factory=Lengths)
    label_rows: dict[str, int] = field(default_factory=dict)
    label_lines: dict[str, int] = field(default_factory=dict)
    most_labels: int = 0
    all_labels: int = 0
    numbers: array[float] = field(default_factory=lambda: array("d"))  # answers of rows whose answers are numbers
    _exact: bytearray = field(default_factory=bytearray)
    _normalised: bytearray = field(default_factory=bytearray)
    _seconds: bytearray = field(default_factory=bytearray)  # digests of second texts that hold the answers
    _answers: bytearray = field(default_factory=bytearray)
    _lines: array[int] = field(default_factory=lambda: array("Q"))
    _label_ids: array[int] = field(default_factory=lambda: array("H"))
    _ids: dict[str, int] = field(default_factory=dict)

    def add(self, line: int, row: Row) -> bool:
        """Add one row. False if there are too many different labels, after which no row can be added."""
        names = self.task.classes_of(row.label)
        for name in names:
            if name in self.label_rows:
                self.label_rows[name] += 1
                continue
            if len(self.label_rows) == MAX_LABELS:
                reason = f"this is the {MAX_LABELS + 1:,}th different label, and {MAX_LABELS:,} at most make sense"
                self.log.end("labels", line, reason, "set `data.columns.label` to the column of the labels")
                return False
            self.label_rows[name] = 1
            self.label_lines[name] = line
        self.lengths.add(row.text, row.text_pair)
        exact, normalised = digests(row.text, row.text_pair)
        self._exact += exact
        self._normalised += normalised
        if self.task.in_second:
            self._seconds += digest(normalise(row.text_pair or ""))
        self._lines.append(line)
        self._label_ids.append(self._ids.setdefault(names[0] if names else "", len(self._ids)))
        if not isinstance(row.label, str):
            self._answers += digest(json.dumps(row.label))
            if isinstance(row.label, float):
                self.numbers.append(row.label)
            elif self.task.labelled:
                self.most_labels = max(self.most_labels, len(row.label))
                self.all_labels += len(row.label)
        return True

    @cached_property
    def task(self) -> Task:
        """What the answers of its rows are. Every row asks for it."""
        return self.columns.text_task

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def complete(self) -> bool:
        """Whether every row could be read. Missing labels are only reported for complete splits."""
        return not errors(list(self.log.findings()))

    @property
    def labels(self) -> list[str]:
        """Names of the labels of its rows, in the order of first occurrence."""
        return list(self.label_rows)

    @property
    def exact(self) -> NDArray[np.uint64]:
        """Digest of each text without surrounding white space, shape (rows,)."""
        return np.frombuffer(self._exact, "<u8")

    @property
    def normalised(self) -> NDArray[np.uint64]:
        """Digest of each normalised text, shape (rows,); 0 where it has fewer than MIN_NORMALISED characters."""
        return np.frombuffer(self._normalised, "<u8")

    @property
    def groups(self) -> NDArray[np.uint64]:
        """A digest that rows share which belong into one split, shape (rows,).

        Of the second text if it holds the answers; else of the normalised text, or of the text if that is short.
        """
        if self.task.in_second:
            return np.frombuffer(self._seconds, "<u8")
        return np.where(self.normalised != 0, self.normalised, self.exact)

    @property
    def lines(self) -> NDArray[np.uint64]:
        """The line from 1 on which each row starts, shape (rows,)."""
        return np.frombuffer(self._lines, np.uint64)

    @property
    def label_ids(self) -> NDArray[np.uint16]:
        """Number of the label of each row, shape (rows,); of several labels the first by name counts."""
        return np.frombuffer(self._label_ids, np.uint16)

    @property
    def answers(self) -> NDArray[np.uint64] | NDArray[np.uint16]:
        """Digest of all labels or spans of each row, shape (rows,)."""
        return np.frombuffer(self._answers, "<u8") if self._answers else self.label_ids

    def label_of(self, row: int) -> str:
        """The label of a row; of several labels the first by name."""
        return list(self._ids)[self._label_ids[row]]


def read_facts(
    name: SplitName,
    file: Path,
    columns: Columns,
    advance: Callable[[int], None] = no_progress,
    row_format: RowFormat | None = None,
    label_separator: LabelSeparator = "|",
    kept: Iterable[bool] | None = None,
) -> SplitFacts:
    """Read a split's file once, or its `kept` rows; the result's `log` has the findings.

    Raises:
        StageFailedError: `kept` is of another number of rows.
    """
    log = FindingLog(file, columns.place)
    rows = read_rows(file, columns, log, advance, row_format, label_separator)
    return gather_facts(SplitFacts(name, file, log, columns), rows if kept is None else masked(file, rows, kept))


def masked(file: Path, rows: Iterable[tuple[int, Row]], kept: Iterable[bool]) -> Iterator[tuple[int, Row]]:
    """The `kept` rows of a file.

    Raises:
        StageFailedError: the file has another number of rows than `kept`.
    """
    try:
        yield from (row for row, keep in zip(rows, kept, strict=True) if keep)
    except ValueError as error:
        raise changed(file, "it had another number of rows when it was checked") from error


def changed(file: Path, why: str) -> StageFailedError:
    """The error about a file that is not as it was when it was checked."""
    return StageFailedError(f"{file} was changed while it was read", why=why, fix="build again once it is complete")


def gather_facts(facts: SplitFacts, rows: Iterable[tuple[int, Row]]) -> SplitFacts:
    """Add all `rows`, each with its line, to `facts`."""
    for line, row in rows:
        if not facts.add(line, row):
            break
    return facts
