"""Counts of the cells of each column of a data file, by which texts and labels are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.data.detect import mixed_separators, separator_between_labels
from edgepack.recipe.model import LabelSeparator
from edgepack.tasks.cells import json_list, labels_in
from edgepack.tasks.labelled_spans import are_spans
from edgepack.tasks.tags import is_tag
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.rows.label_cells import NOTHING_WRITTEN

MAX_VALUES: Final = 1000  # different values that are counted; a column of labels has fewer
_LONGEST_VALUE: Final = 200
# What natural language has and ids, dates and addresses lack: an ideograph, or a letter, a space and a letter.
_PROSE: Final = re.compile(r"[\u3400-\u9fff]|[^\W\d_][,.]?\s+[^\W\d_]")


@dataclass
class Column:
    """Counts of the cells of one column, in constant memory."""

    name: str
    filled: int = 0  # cells that are not empty
    characters: int = 0
    prose: int = 0  # cells that hold natural language
    lists: int = 0  # cells that are lists or objects, as JSON has them
    of_words: int = 0  # lists of strings
    of_tags: int = 0  # lists of BIO or BIOES tags
    of_spans: int = 0  # lists of spans that are not empty
    of_none: int = 0  # empty lists
    of_one: int = 0  # lists of one string, which are one label
    values: set[str] = field(default_factory=set)  # different values, list items included; at most MAX_VALUES + 1

    def add(self, value: Any) -> None:
        """Count one cell."""
        found = json_list(value) or labels_in(value)
        if isinstance(found, (list, dict)):
            self.lists += 1
            self.of_spans += are_spans(found)
            self._add_items(found if isinstance(found, list) else [])
            return
        text = "" if value is None else str(value).strip()
        if not text or text in NOTHING_WRITTEN:
            return
        self.filled += 1
        self.characters += len(text)
        self.prose += _PROSE.search(text) is not None
        if len(self.values) <= MAX_VALUES:
            self.values.add(text[:_LONGEST_VALUE])

    def _add_items(self, items: list[Any]) -> None:
        self.of_none += not items
        if items and all(isinstance(item, str) for item in items):
            self.of_words += 1
            self.of_one += len(items) == 1
            self.of_tags += all(map(is_tag, items))
            if len(self.values) <= MAX_VALUES:
                self.values.update(item[:_LONGEST_VALUE] for item in items)

    @property
    def is_of_many(self) -> bool:
        """Whether a cell is a list that is not one label."""
        return self.lists > self.of_one

    @property
    def label_separator(self) -> LabelSeparator | None:
        """What separates labels in a cell; None if a cell is one label or a JSON list."""
        if self.lists:
            return None
        mixed = mixed_separators(self.values)
        return separator_between_labels(self.values) if mixed is None else mixed[0]

    @property
    def mean_length(self) -> float:
        """Mean number of characters of cells that are not empty."""
        return self.characters / max(1, self.filled)


@dataclass(frozen=True)
class FileProfile:
    """Form and columns of a data file. Without a header, columns are named by number from 1."""

    file: Path
    form: RowFormat
    header: bool
    rows: int
    columns: tuple[Column, ...]

    def column(self, names: Iterable[str]) -> Column | None:
        """The first of `names` that is a column, ignoring case."""
        by_name = {column.name.lower(): column for column in self.columns}
        return next((by_name[name] for name in names if name in by_name), None)


def counted_cells(
    file: Path, form: RowFormat, names: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True
) -> FileProfile:
    """The counts of the cells of a table whose columns have these names."""
    columns = tuple(Column(name) for name in names)
    count = 0
    for fields in rows:
        count += 1
        for column, value in zip(columns, fields, strict=False):
            column.add(value)
    return FileProfile(file, form, header, count, columns)
