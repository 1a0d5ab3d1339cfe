"""Unlabelled texts, which the teacher labels for the student, without the texts of dev and test.

A student that learns the teacher's answer to a test text would be scored on a text that it was trained on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edgepack.artifacts import Row
from edgepack.data.files import explained, filled_lines, format_of, no_progress, opened
from edgepack.data.split_stats import SplitFacts
from edgepack.data.tables import Record, read_records
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import errors
from edgepack.recipe.model import Columns
from edgepack.tasks.cells import texts_of
from edgepack.util.text import counted
from edgepack.util.text_digests import NO_DIGEST, digests
from edgepack_runtime.rows.formats import LINES, RowFormat
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.util.texts import is_unseen

PLAIN_SUFFIX: Final = ".txt"  # one text per line


class TextSet:
    """Digests of the texts of some rows, exact and normalised. 16 bytes a row.

    Args:
        exact: as `SplitFacts.exact`, in any order.
        normalised: as `SplitFacts.normalised`, in any order.
    """

    def __init__(self, exact: NDArray[np.uint64], normalised: NDArray[np.uint64]) -> None:
        self._exact = array("Q", np.unique(exact).tobytes())
        self._normalised = array("Q", np.unique(normalised).tobytes())

    @classmethod
    def of_splits(cls, splits: Sequence[SplitFacts]) -> TextSet:
        """Digests of every row of `splits`, of which there is at least one."""
        return cls(
            np.concatenate([split.exact for split in splits]), np.concatenate([split.normalised for split in splits])
        )

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> TextSet:
        """Digests of `rows`, which are read."""
        exact, normalised = bytearray(), bytearray()
        for row in rows:
            one, other = digests(row.text, row.text_pair)
            exact += one
            normalised += other
        return cls(np.frombuffer(exact, "<u8"), np.frombuffer(normalised, "<u8"))

    def __contains__(self, row: Row) -> bool:
        exact, normalised = digests(row.text, row.text_pair)
        return _in(exact, self._exact) or (normalised != NO_DIGEST and _in(normalised, self._normalised))


def _in(digest: bytes, ordered: array[int]) -> bool:
    wanted = int.from_bytes(digest, "little")
    place = bisect_left(ordered, wanted)
    return place < len(ordered) and ordered[place] == wanted


def count(
    file: Path, columns: Columns, held_out_texts: TextSet, log: FindingLog, advance: Callable[[int], None]
) -> int:
    """Number of usable texts of `file`; errors and dropped texts are logged as findings."""
    used = left_out = 0
    for row in _rows(file, columns, log, advance):
        used, left_out = (used, left_out + 1) if row in held_out_texts else (used + 1, left_out)
    if left_out:
        reason = f"{left_out} of {counted(used + left_out, 'text')} left out: dev or test holds the same, or nearly"
        fix = "nothing needs to be done; a model must not be taught what it is measured with"
        log.add("texts that dev or test hold", "warning", None, reason, fix)
    if not used and not log.ended:
        log.add("empty", "error", None, "the file holds no text that can be used", "add texts, or remove the key")
    return used


def free_texts(file: Path, columns: Columns, held_out_texts: TextSet) -> Iterator[Row]:
    """The texts of `file` that are not in `held_out_texts`, in file order, as rows without a label."""
    for row in _rows(file, columns, FindingLog(file), no_progress):
        if row not in held_out_texts:
            yield row


def further_texts(file: Path, columns: Columns, held_out: Iterable[Row]) -> list[Row]:
    """The texts of a file for the vocabulary, without texts of the rows `held_out` (exact or normalised).

    Raises:
        RecipeInvalidError: the file cannot be read, or has no usable text; has every finding.
    """
    held_out_texts, log = TextSet.of_rows(held_out), FindingLog(file)
    rows = [row for row in _rows(file, columns, log, no_progress) if row not in held_out_texts]
    if not rows and not log.ended:
        log.add("empty", "error", None, "all texts of the file are in dev or test, too", "add other texts")
    findings = list(log.findings())
    if stopping := errors(findings):
        raise RecipeInvalidError(message("mistake.unusable", file=str(file), n=len(stopping)), findings=findings)
    return rows


def _rows(file: Path, columns: Columns, log: FindingLog, advance: Callable[[int], None]) -> Iterator[Row]:
    try:
        if file.suffix.lower() == PLAIN_SUFFIX:
            records = _lines(file, advance)
        else:
            records = read_records(file, columns.texts, log, advance, format_of(file))
        for line, values in records:
            texts = texts_of(line, values, log)
            if texts is not None:
                yield Row(texts[0], (), texts[1])
    except RowError as error:
        log.stop(explained(error, file))


def _lines(file: Path, advance: Callable[[int], None]) -> Iterator[Record]:
    with opened(file, RowFormat(LINES), advance) as rows:
        for number, line in filled_lines(rows):
            if not is_unseen(line):
                yield number, (line.strip(),)
