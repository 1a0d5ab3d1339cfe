"""Writing train, dev and test beside a recipe: UTF-8, tables with a header or JSON lines; all three or none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from edgepack.artifacts import Row
from edgepack.datasets.facts import SplitFacts, SplitName
from edgepack.datasets.log import FindingLog
from edgepack.recipe.model import Columns
from edgepack_runtime.spans import Span

_BREAKS: Final = re.compile(r"[\t\r\n]+")


def written_columns(columns: Columns) -> Columns:
    """What columns of rows like those of `columns` are called in the files that are written."""
    text_pair = None if columns.text_pair is None else "text_pair"
    if columns.answer == "spans":
        return Columns(spans="spans")
    return Columns(text_pair=text_pair, labels=None if columns.answer == "label" else "labels")


def written_suffix(columns: Columns) -> str:
    """How files of such rows are written: as tables, where each has one label, else as JSON lines."""
    return ".tsv" if columns.answer == "label" else ".jsonl"


@dataclass
class Written:
    """The files while they are written, under names of their own until all are complete."""

    facts: dict[SplitName, SplitFacts]
    columns: Columns
    respaced: int = 0  # texts in which tabs and line ends became spaces
    _streams: dict[SplitName, TextIO] = field(default_factory=dict)

    def add(self, name: SplitName, line: int, row: Row) -> None:
        """Append one row, which stands on `line` of its source. A tab or a line end is a space to the tokenizer."""
        if isinstance(row.label, str):
            row = self._respace(row, row.label)
            fields = [row.text, *([] if row.text_pair is None else [row.text_pair]), str(row.label)]
            self._streams[name].write("\t".join(fields) + "\n")
        else:
            self._streams[name].write(json.dumps(_document(row, self.columns), ensure_ascii=False) + "\n")
        self.facts[name].add(line, row)

    def _respace(self, row: Row, label: str) -> Row:
        text, pair = _BREAKS.sub(" ", row.text), row.text_pair and _BREAKS.sub(" ", row.text_pair)
        self.respaced += (text != row.text) + (pair != row.text_pair)
        return Row(text, _BREAKS.sub(" ", label), pair)


def _document(row: Row, columns: Columns) -> dict[str, Any]:
    """A row of several labels or spans as a recipe reads it."""
    if columns.answer == "spans":
        return {"text": row.text, "spans": [span._asdict() for span in row.label if isinstance(span, Span)]}
    return row.document(columns.answer)


@contextmanager
def writing(files: Mapping[SplitName, Path], sources: Mapping[SplitName, Path], columns: Columns) -> Iterator[Written]:
    """Open a file for each split; they take their names when the context ends well, and are gone otherwise.

    What is found wrong with a split is said of its source in `sources`. `columns` are those of `written_columns`.
    """
    parts = {name: file.with_name(f".{file.name}.part") for name, file in files.items()}
    try:
        with ExitStack() as stack:
            streams: dict[SplitName, TextIO] = {
                name: stack.enter_context(part.open("w", encoding="utf-8", newline="\n"))
                for name, part in parts.items()
            }
            for stream in streams.values() if columns.answer == "label" else ():
                stream.write("\t".join(columns.wanted.values()) + "\n")
            facts = {name: SplitFacts(name, file, FindingLog(file), columns) for name, file in sources.items()}
            yield Written(facts, columns, 0, streams)
        for name, part in parts.items():
            part.replace(files[name])
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
