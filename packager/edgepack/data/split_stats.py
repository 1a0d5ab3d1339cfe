"""What one pass over a split keeps: 26 bytes a row to compare the rows by, counts of labels and lengths, findings.

Where a row may have any number of labels or spans, 34 bytes: a digest of them is kept too.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edgepack.artifacts import Row
from edgepack.data.finding_log import FindingLog
from edgepack.data.lengths import Lengths
from edgepack.data.lines import Form, no_progress
from edgepack.data.tables import read_rows
from edgepack.data.text_digests import digest, digests
from edgepack.recipe.findings import errors
from edgepack.recipe.model import Columns

MAX_LABELS: Final = 10_000  # what has more different values is another column; fits the 16 bits of `label_ids`

SplitName = Literal["train", "dev", "test"]
HeldOut = Literal["dev", "test"]
HELD_OUT: Final[tuple[HeldOut, ...]] = ("dev", "test")
SPLIT_NAMES: Final[tuple[SplitName, ...]] = ("train", *HELD_OUT)


@dataclass
class SplitFacts:
    """One split as `check_splits` compares it. No text is kept, only digests of 8 bytes (`datasets.texts`).

    `label_rows` has the number of rows that hold each name of a label, in the order in which the names came up, and
    `label_lines` the line on which each did. `most_labels` is how many labels or spans one row holds at most, and
    `all_labels` how many all of them hold; where each row has one label, neither is counted.
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
    _exact: bytearray = field(default_factory=bytearray)
    _normalised: bytearray = field(default_factory=bytearray)
    _answers: bytearray = field(default_factory=bytearray)
    _lines: array[int] = field(default_factory=lambda: array("Q"))
    _label_ids: array[int] = field(default_factory=lambda: array("H"))
    _ids: dict[str, int] = field(default_factory=dict)

    def add(self, line: int, row: Row) -> bool:
        """Take one row in; false when there is one label too many, and nothing more can be taken."""
        names = row.names
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
        self._lines.append(line)
        self._label_ids.append(self._ids.setdefault(names[0] if names else "", len(self._ids)))
        if not isinstance(row.label, str):
            self.most_labels = max(self.most_labels, len(row.label))
            self.all_labels += len(row.label)
            self._answers += digest(json.dumps(row.label))
        return True

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def complete(self) -> bool:
        """Whether every row could be read: what a split lacks can only be said of a whole one."""
        return not errors(list(self.log.findings()))

    @property
    def labels(self) -> list[str]:
        """The names of labels that its rows hold, in the order in which they came up."""
        return list(self.label_rows)

    @property
    def exact(self) -> NDArray[np.uint64]:
        """Digest of each text without the white space around it, shape (rows,)."""
        return np.frombuffer(self._exact, "<u8")

    @property
    def normalised(self) -> NDArray[np.uint64]:
        """Digest of each normalised text, shape (rows,); 0 where it has fewer than MIN_NORMALISED characters."""
        return np.frombuffer(self._normalised, "<u8")

    @property
    def lines(self) -> NDArray[np.uint64]:
        """The line from 1 on which each row starts, shape (rows,)."""
        return np.frombuffer(self._lines, np.uint64)

    @property
    def label_ids(self) -> NDArray[np.uint16]:
        """What rows of the same label share, shape (rows,): of several labels the first by name counts, if any."""
        return np.frombuffer(self._label_ids, np.uint16)

    @property
    def answers(self) -> NDArray[np.uint64] | NDArray[np.uint16]:
        """What rows share that say the same of their texts, with all their labels or spans, shape (rows,)."""
        return np.frombuffer(self._answers, "<u8") if self._answers else self.label_ids

    def label_of(self, row: int) -> str:
        """The label of a row, where each has one; else the first of them by name."""
        return list(self._ids)[self._label_ids[row]]


def read_facts(
    name: SplitName,
    file: Path,
    columns: Columns,
    advance: Callable[[int], None] = no_progress,
    form: Form | None = None,
    label_separator: str = "|",
    kept: Iterable[bool] | None = None,
) -> SplitFacts:
    """One pass over a split's file, or over the rows of it that are `kept`; the result's `log` has the findings."""
    log = FindingLog(file)
    rows = read_rows(file, columns, log, advance, form, label_separator)
    return gather_facts(SplitFacts(name, file, log, columns), rows if kept is None else compress(rows, kept))


def gather_facts(facts: SplitFacts, rows: Iterable[tuple[int, Row]]) -> SplitFacts:
    """`facts` with all of `rows`, each with its line, taken in."""
    for line, row in rows:
        if not facts.add(line, row):
            break
    return facts
