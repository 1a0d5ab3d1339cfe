"""Counts of the cells of each column of a data file, by which texts and labels are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from edgepack.data.detect import mixed_separators, separator_between_labels
from edgepack.recipe.model import LabelSeparator
from edgepack.tasks.cells import json_list
from edgepack.tasks.intent_slots import are_slots
from edgepack.tasks.labelled_spans import are_spans
from edgepack.tasks.tags import is_tag
from edgepack_runtime.rows.formats import RowFormat
from edgepack_runtime.rows.label_cells import NOTHING_WRITTEN, labels_in

MAX_VALUES: Final = 1000  # different values that are counted; a column of labels has fewer
_LONGEST_VALUE: Final = 200
_NEARLY_ALL: Final = 0.9
_FEWEST_SENTENCES: Final = 3
# Without a full stop a phrase may be a label: only many show that none recurs.
_FEWEST_PHRASES: Final = 20
_SHORTEST_PHRASE: Final = 6  # characters on average
_LONG_PHRASE: Final = 20  # characters on average; longer than labels if there are too many values to count
_SENTENCE_ENDS: Final = ("。", "！", "？", "…", ".", "!", "?")
# What natural language has and ids, dates and addresses lack: an ideograph, or a letter, a space and a letter.
_PROSE: Final = re.compile(r"[\u3400-\u9fff]|[^\W\d_][,.]?\s+[^\W\d_]")


@dataclass
class Column:
    """Counts of the cells of one column, in constant memory."""

    name: str
    filled: int = 0  # cells that are not empty
    items: int = 0  # strings in lists of strings, until there are too many values
    characters: int = 0  # of cells and of items
    prose: int = 0  # cells and items that hold natural language
    sentences: int = 0  # cells and items that end like a sentence
    lists: int = 0  # cells that are lists or objects, as JSON has them
    of_words: int = 0  # lists of strings
    of_tags: int = 0  # lists of BIO or BIOES tags
    of_spans: int = 0  # lists of spans that are not empty
    of_slots: int = 0  # objects of slots with their texts
    of_none: int = 0  # empty lists
    of_one: int = 0  # lists of one string, which are one label
    is_result: bool = False  # whether annotators wrote it, and it is no part of what they read
    values: set[str] = field(default_factory=set)  # different values, list items included; at most MAX_VALUES + 1

    def add(self, value: Any) -> None:
        """Count one cell."""
        found = labels_in(json_list(value) or value)
        if isinstance(found, (list, dict)):
            self.lists += 1
            self.of_spans += are_spans(found)
            self.of_slots += are_slots(found)
            self._add_items(found if isinstance(found, list) else [])
            return
        text = "" if value is None else str(value).strip()
        if not text or text in NOTHING_WRITTEN:
            return
        self.filled += 1
        self._add_text(text)

    def _add_text(self, text: str) -> None:
        self.characters += len(text)
        self.prose += _PROSE.search(text) is not None
        self.sentences += text.endswith(_SENTENCE_ENDS)
        if len(self.values) <= MAX_VALUES:
            self.values.add(text[:_LONGEST_VALUE])

    def _add_items(self, items: list[Any]) -> None:
        self.of_none += not items
        if items and all(isinstance(item, str) for item in items):
            self.of_words += 1
            self.of_one += len(items) == 1
            self.of_tags += all(map(is_tag, items))
            if len(self.values) <= MAX_VALUES:  # of tokens, thousands of lists would take seconds
                self.items += len(items)
                for item in items:
                    self._add_text(item)

    @property
    def is_of_many(self) -> bool:
        """Whether a cell is a list that is not one label."""
        return self.lists > self.of_one + self.of_none  # an empty list is a row that nobody annotated

    @property
    def label_separator(self) -> LabelSeparator | None:
        """What separates labels in a cell; None if a cell is one label or a JSON list."""
        if self.lists:
            return None
        mixed = mixed_separators(self.values)
        return separator_between_labels(self.values) if mixed is None else mixed[0]

    @property
    def mean_length(self) -> float:
        """Mean number of characters of cells and items that are not empty."""
        return self.characters / max(1, self.filled + self.items)

    @property
    def is_free_text(self) -> bool:
        """Whether nearly every cell or item is another sentence or phrase: answers that are written, not chosen."""
        total, shortest = self.filled + self.items, _SHORTEST_PHRASE
        if len(self.values) > MAX_VALUES:
            shortest = _LONG_PHRASE
        elif len(self.values) < _NEARLY_ALL * total:
            return False
        if self.sentences >= _NEARLY_ALL * total:
            return total >= _FEWEST_SENTENCES
        return total >= _FEWEST_PHRASES and self.prose >= total / 2 and self.mean_length >= shortest


@dataclass(frozen=True)
class FileProfile:
    """Form and columns of a data file. Without a header, columns are named by number from 1."""

    file: Path
    form: RowFormat
    header: bool
    rows: int
    columns: tuple[Column, ...]

    @property
    def answers(self) -> FileProfile:
        """The columns that may hold answers: those that annotators wrote, or all if they wrote none."""
        results = tuple(column for column in self.columns if column.is_result)
        return replace(self, columns=results or self.columns)

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
            if value:  # a wide sheet has many empty cells
                column.add(value)
    return FileProfile(file, form, header, count, columns)
