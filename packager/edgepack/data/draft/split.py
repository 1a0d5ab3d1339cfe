"""Stratified splits of rows, with similar texts in the same split, and the files of the splits.

The split of a row depends on texts and labels only, not on their order, the machine or a random state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from edgepack.artifacts import Row
from edgepack.data.split_checks import repeated_rows
from edgepack.data.split_stats import SplitFacts
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, HeldOut, SplitName
from edgepack.tasks.registry import values
from edgepack_runtime.rows.reader import line_of_fields
from edgepack_runtime.util.fs import random_name

TRAIN: Final = 0
DEV: Final = 1
TEST: Final = 2
IN_HELD_OUT: Final = 3  # dev or test holds it
REPEATED: Final = 4
_SHARE: Final = 0.1  # of the rows of each label, for dev and for test each
_LEAST_ROWS: Final[Mapping[HeldOut, int]] = {"dev": 50, "test": 100}  # if that is at most the greatest share
_GREATEST_SHARE: Final[Mapping[HeldOut, float]] = {"dev": 0.15, "test": 0.3}
_MIN_GROUPS: Final = 3  # a label with fewer different texts cannot be in every split, and stays in train


def held_out_share(name: HeldOut, rows: int) -> float:
    """The share (0 to 1) of `rows` that a split gets: a tenth; of less than 1,000 rows more.

    Test gets at least 100 rows while that is at most 30 % of them, dev at least 50 while that is at most 15 %. A
    release must be shown to be better than the most frequent answer, and on 30 test rows most good models are not.
    Share of models that the gate's own check shows to be better, at 95 % (binomial, errors independent of the label):

    ========================  ========  =======  =======  =======  ========
    most frequent answer      accuracy  30 rows  60 rows  90 rows  100 rows
    ========================  ========  =======  =======  =======  ========
    50 %, 2 or 10 labels      80 %      74 %     99 %     100 %    100 %
    50 %, 2 or 10 labels      85 %      92 %     100 %    100 %    100 %
    50 %, 2 or 10 labels      90 %      99 %     100 %    100 %    100 %
    70 %, 2 or 10 labels      80 %      6 %      18 %     29 %     32 %
    70 %, 2 or 10 labels      85 %      19 %     53 %     75 %     80 %
    70 %, 2 or 10 labels      90 %      46 %     90 %     98 %     99 %
    10 %, 10 equal labels     80 %      100 %    100 %    100 %    100 %
    ========================  ========  =======  =======  =======  ========
    """
    return max(_SHARE, min(_LEAST_ROWS[name] / max(rows, 1), _GREATEST_SHARE[name]))


def assign(facts: SplitFacts, to_fill: Iterable[HeldOut], taken: Iterable[SplitFacts] = ()) -> NDArray[np.uint8]:
    """The split of each row, shape (rows,): TRAIN, DEV, TEST, IN_HELD_OUT or REPEATED.

    A row with the text and the answer of an earlier one is REPEATED. Other rows with similar texts (equal, or equal
    after normalisation) stay together. About `held_out_share` of the rows of each label go to each split to fill: at
    least one text if the label has three or more and none is a large part of it.

    Args:
        facts: statistics of all rows.
        to_fill: splits to fill, besides train.
        taken: existing splits; rows that are similar to their texts are left out.
    """
    # A group for each text, in the order of digests, which is as good as random.
    kept = ~repeated_rows(facts)
    keys, first, group, sizes = np.unique(
        facts.groups[kept], return_index=True, return_inverse=True, return_counts=True
    )
    labels = facts.label_ids[kept][first]
    of_group = np.full(len(keys), TRAIN, np.uint8)
    for split in taken:
        of_group[np.isin(keys, split.groups)] = IN_HELD_OUT
    rows = int(np.count_nonzero(of_group[group] == TRAIN))
    shares = {{"dev": DEV, "test": TEST}[name]: held_out_share(name, rows) for name in to_fill}
    by_label = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    for groups in by_label:
        free = groups[of_group[groups] == TRAIN]
        of_group[free] = _divide(sizes[free].tolist(), shares)
    codes = np.full(len(facts), REPEATED, np.uint8)
    codes[kept] = of_group[group]
    return codes


def _divide(sizes: list[int], shares: Mapping[int, float]) -> list[int]:
    """The split of each group of one label, from the number of rows of each group and the share of each split."""
    if len(sizes) < _MIN_GROUPS:
        return [TRAIN] * len(sizes)
    wanted = {code: max(1, round(sum(sizes) * share)) for code, share in shares.items()}
    needed = dict(wanted)
    result = []
    for size in sizes:
        # A group of more similar texts than a split has rows would fill it alone.
        fitting = [code for code in needed if needed[code] >= size]
        code = max(fitting, key=lambda code: needed[code] / wanted[code], default=TRAIN)
        if fitting:
            needed[code] -= size
        result.append(code)
    return result


_BREAKS: Final = re.compile(r"[\t\r\n]+")


def written_columns(columns: Columns) -> Columns:
    """The column names in written files, for rows of `columns`."""
    text_pair = None if columns.text_pair is None else "text_pair"
    answer = {key: key for key in columns.text_task.columns}
    return Columns(text_pair=text_pair, **answer)


def written_suffix(columns: Columns) -> str:
    """The suffix of written files: tables for single labels, else JSON lines."""
    return ".tsv" if columns.text_task.one_class else ".jsonl"


@dataclass
class Written:
    """The files during writing, under temporary names until all are complete."""

    facts: dict[SplitName, SplitFacts]
    columns: Columns
    respaced: int = 0  # texts in which tabs and line ends became spaces
    _streams: dict[SplitName, TextIO] = field(default_factory=dict)

    def add(self, name: SplitName, line: int, row: Row) -> None:
        """Append one row, which is on `line` of its source. A tab or a line end is a space to the tokenizer."""
        if isinstance(row.label, str):
            row = self._respace(row, row.label)
            fields = [row.text, *([] if row.text_pair is None else [row.text_pair]), str(row.label)]
            self._streams[name].write(line_of_fields(fields, "\t") + "\n")
        else:
            document = {**row.document(None), **values(self.columns.text_task, row.label)}
            self._streams[name].write(json.dumps(document, ensure_ascii=False) + "\n")
        self.facts[name].add(line, row)

    def _respace(self, row: Row, label: str) -> Row:
        text, pair = _BREAKS.sub(" ", row.text), row.text_pair and _BREAKS.sub(" ", row.text_pair)
        self.respaced += (text != row.text) + (pair != row.text_pair)
        return Row(text, _BREAKS.sub(" ", label), pair)


@contextmanager
def writing(files: Mapping[SplitName, Path], sources: Mapping[SplitName, Path], columns: Columns) -> Iterator[Written]:
    """Open a file for each split. They get their names when the context succeeds, and are removed otherwise.

    Findings about a split name its file in `sources`. `columns` are those of `written_columns`.
    """
    parts = {name: random_name(file) for name, file in files.items()}
    try:
        with ExitStack() as stack:
            streams: dict[SplitName, TextIO] = {
                name: stack.enter_context(part.open("x", encoding="utf-8", newline="\n"))
                for name, part in parts.items()
            }
            for stream in streams.values() if columns.text_task.one_class else ():
                stream.write("\t".join(columns.wanted.values()) + "\n")
            facts = {name: SplitFacts(name, file, FindingLog(file), columns) for name, file in sources.items()}
            yield Written(facts, columns, 0, streams)
        for name, part in parts.items():
            part.replace(files[name])
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
