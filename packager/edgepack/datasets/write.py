"""Writing train.tsv, dev.tsv and test.tsv: UTF-8, a header, `text` and `label`; all three or none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from edgepack.artifacts import Row
from edgepack.datasets.facts import SplitFacts, SplitName
from edgepack.datasets.log import FindingLog

HEADER: Final = "text\tlabel\n"
_BREAKS: Final = re.compile(r"[\t\r\n]+")


@dataclass
class Written:
    """The files while they are written, under names of their own until all are complete."""

    facts: dict[SplitName, SplitFacts]
    respaced: int = 0  # texts in which tabs and line ends became spaces
    _streams: dict[SplitName, TextIO] = field(default_factory=dict)

    def add(self, name: SplitName, line: int, row: Row) -> None:
        """Append one row, which stands on `line` of its source. A tab or a line end is a space to the tokenizer."""
        text, label = _BREAKS.sub(" ", row.text), _BREAKS.sub(" ", row.label)
        self.respaced += text != row.text
        self._streams[name].write(f"{text}\t{label}\n")
        self.facts[name].add(line, Row(text, label))


@contextmanager
def writing(files: Mapping[SplitName, Path], sources: Mapping[SplitName, Path]) -> Iterator[Written]:
    """Open a file for each split; they take their names when the context ends well, and are gone otherwise.

    What is found wrong with a split is said of its source in `sources`.
    """
    parts = {name: file.with_name(f".{file.name}.part") for name, file in files.items()}
    try:
        with ExitStack() as stack:
            streams: dict[SplitName, TextIO] = {
                name: stack.enter_context(part.open("w", encoding="utf-8", newline="\n"))
                for name, part in parts.items()
            }
            for stream in streams.values():
                stream.write(HEADER)
            facts = {name: SplitFacts(name, file, FindingLog(file)) for name, file in sources.items()}
            yield Written(facts, 0, streams)
        for name, part in parts.items():
            part.replace(files[name])
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
