"""What one pass over a split keeps: 26 bytes a row to compare the rows by, counts of labels and lengths, findings."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edgepack.artifacts import Row
from edgepack.datasets.form import Form
from edgepack.datasets.lengths import Lengths
from edgepack.datasets.lines import no_progress
from edgepack.datasets.log import FindingLog
from edgepack.datasets.tables import read_rows
from edgepack.datasets.texts import MIN_NORMALISED, NO_DIGEST, digest, normalise
from edgepack.recipe.findings import errors
from edgepack.recipe.model import Columns

MAX_LABELS: Final = 10_000  # what has more different values is another column; fits the 16 bits of `_label_ids`

SplitName = Literal["train", "dev", "test"]
HeldOut = Literal["dev", "test"]
HELD_OUT: Final[tuple[HeldOut, ...]] = ("dev", "test")
SPLIT_NAMES: Final[tuple[SplitName, ...]] = ("train", *HELD_OUT)


@dataclass
class SplitFacts:
    """One split as `check_splits` compares it. No text is kept, only digests of 8 bytes (`datasets.texts`).

    `label_rows` has the number of rows of each label, in the order in which the labels came up.
    """

    name: SplitName
    file: Path
    log: FindingLog
    lengths: Lengths = field(default_factory=Lengths)
    label_rows: dict[str, int] = field(default_factory=dict)
    _exact: bytearray = field(default_factory=bytearray)
    _normalised: bytearray = field(default_factory=bytearray)
    _lines: array[int] = field(default_factory=lambda: array("Q"))
    _label_ids: array[int] = field(default_factory=lambda: array("H"))
    _ids: dict[str, int] = field(default_factory=dict)

    def add(self, line: int, row: Row) -> bool:
        """Take one row in; false when the label is one too many, and nothing more can be taken."""
        label_id = self._ids.setdefault(row.label, len(self._ids))
        if label_id >= MAX_LABELS:
            reason = f"this is the {MAX_LABELS + 1:,}th different label, and {MAX_LABELS:,} at most make sense"
            self.log.end("labels", line, reason, "set `data.columns.label` to the column of the labels")
            return False
        self.label_rows[row.label] = self.label_rows.get(row.label, 0) + 1
        self.lengths.add(row.text)
        normalised = normalise(row.text)
        self._exact += digest(row.text.strip())
        self._normalised += digest(normalised) if len(normalised) >= MIN_NORMALISED else NO_DIGEST
        self._lines.append(line)
        self._label_ids.append(label_id)
        return True

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def complete(self) -> bool:
        """Whether every row could be read: what a split lacks can only be said of a whole one."""
        return not errors(list(self.log.findings()))

    @property
    def labels(self) -> list[str]:
        """Labels by id."""
        return list(self._ids)

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
        """Position in `labels` of each row's label, shape (rows,)."""
        return np.frombuffer(self._label_ids, np.uint16)


def read_facts(
    name: SplitName,
    file: Path,
    columns: Columns,
    advance: Callable[[int], None] = no_progress,
    form: Form | None = None,
) -> SplitFacts:
    """One pass over a split's file; whatever is wrong with it is in the `log` of the result."""
    log = FindingLog(file)
    return gather_facts(SplitFacts(name, file, log), read_rows(file, columns, log, advance, form))


def gather_facts(facts: SplitFacts, rows: Iterable[tuple[int, Row]]) -> SplitFacts:
    """`facts` with all of `rows`, each with its line, taken in."""
    for line, row in rows:
        if not facts.add(line, row):
            break
    return facts
