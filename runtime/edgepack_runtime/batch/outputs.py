"""Output formats of file predictions: one line per input row.

.jsonl and .txt get one JSON object per line, as on stdout. .csv and .tsv get a header, all columns of an input that is
a table (else `text`, and `text_pair`), one column for each key, and one `score_<label>` for each label instead of
`scores`. Other values than texts and numbers are written as JSON. A cell that a spreadsheet program would run as a
formula gets an apostrophe before it (OWASP, "CSV Injection").
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, Iterator, List, Mapping, Sequence

from edgepack_runtime.batch.inputs import InputRow
from edgepack_runtime.errors import UsageError
from edgepack_runtime.rows.formats import TABLES, in_quotes
from edgepack_runtime.rows.reader import line_of_fields
from edgepack_runtime.tasks.task import Output

_MARK = "\ufeff"  # without it some programs take UTF-8 for another encoding
# Full-width signs begin a formula too where Chinese or Japanese is typed.
_SIGNS = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
# Programs skip blanks before a formula; control characters (NUL) and those without a width are lost on the way into
# some. Those of Unicode's categories Cc, Cf and Zs, and of its property Default_Ignorable_Code_Point.
_SKIPPED = (
    r'"\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160'
    r"\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_FORMULA = re.compile(rf"[{_SKIPPED}\t\r\n]*{_SIGNS}|[\t\r\n]")
# A program that splits at another separator than the file's finds a formula within a cell, or in several: where a comma
# begins the decimals, `-1,1+x` is -1.1 + x. So a number with a sign keeps it where the text behind its separator cannot
# go on with a formula: it begins with a letter other than E.
_GOES_ON = rf"[{_SKIPPED}]*[!-/0-9:-@\[-`{{-~Ee]"
# No blank is a separator, too: else a cell of many would take the square of their number.
_LATER_FORMULA = re.compile(
    rf"([,;\t\r\n][{_SKIPPED}]*)(?={_SIGNS})"
    rf"(?![+-]?[0-9.]+(?:[,;\t](?!{_GOES_ON})|[\r\n]|\Z))"
)
_CONTINUATION = re.compile(_GOES_ON)
_ENDS_WITH_NUMBER = re.compile(rf"[,;\t\r\n][{_SKIPPED}]*[+-][0-9.]+\Z")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*(e[+-]?[0-9]+)?%?\Z", re.IGNORECASE)


class Form:
    """Writer of one output format.

    Args:
        suffix: format of the file.
        outputs: keys of the answers.
        labels: those with a column each in a table, instead of the key with a number for each; empty for none.
        pairs: whether items are pairs.
        columns: the columns of an input that is a table, which a table repeats.
        delimiter: of the columns of a .csv.
        mark: whether a table begins with a byte order mark.
        raw_cells: whether a table is for programs alone: no cell of it is changed.
    """

    def __init__(
        self,
        suffix: str,
        outputs: Sequence[Output],
        labels: Sequence[str],
        *,
        pairs: bool,
        columns: Sequence[str] = (),
        delimiter: str = ",",
        mark: bool = False,
        raw_cells: bool = False,
    ) -> None:
        self._table, self._raw_cells = suffix in TABLES, raw_cells
        self._columns, self._mark = columns, mark
        self._labels = tuple(labels) if self._table else ()
        self._all_keys = [output.name for output in outputs]
        self._by_label = [output.name for output in outputs if self._labels and output.by_label]
        self._keys = [key for key in self._all_keys if key not in self._by_label]
        self._texts = ("text", "text_pair")[: 1 + pairs]
        self._quoted = suffix != ".tsv"
        self._delimiter = delimiter if self._quoted else "\t"
        self._special = re.compile(rf'["\r\n{re.escape(delimiter)}]')

    def header(self) -> str:
        """The header line of a table; empty for JSON lines.

        Raises:
            UsageError: the file cannot hold the name of a column.
        """
        if not self._table:
            return ""
        given = self._columns or self._texts
        added = [*self._keys, *(f"score_{label}" for label in self._labels)]
        names = [*given, *(self._free(name) for name in added)]
        try:
            if not self._quoted and any("\t" in name for name in names):
                raise ValueError("a name holds a tab, and no names of a .tsv file have quotation marks")
            return (_MARK if self._mark else "") + self._line(names)
        except ValueError as error:
            raise UsageError(
                "the output cannot hold the names of the columns", why=str(error), fix="write a .jsonl file"
            ) from error

    def _free(self, name: str) -> str:
        while name in self._columns:
            name = f"predicted_{name}"
        return name

    def answer(self, row: InputRow, found: Mapping[str, Any]) -> str:
        """The line of a row with an item.

        Raises:
            UsageError: a .tsv, whose rows are lines, cannot hold the text.
        """
        if not self._table:
            return json.dumps(found, ensure_ascii=False) + "\n"
        fields = self._given(row)
        scores = [found[key][label] for key in self._by_label for label in self._labels]
        try:
            return self._line([*fields, *(_cell(found[key]) for key in self._keys), *scores])
        except ValueError as error:
            raise UsageError(
                f"a .tsv file cannot hold the answer to line {row.line}",
                why=str(error),
                fix="write a .csv or .jsonl file",
            ) from error

    def missing(self, row: InputRow) -> str:
        """The line of a row without an answer, with null keys or empty cells, so that rows match the input."""
        if not self._table:
            return json.dumps(dict.fromkeys(self._all_keys), ensure_ascii=False) + "\n"
        empty = [""] * (len(self._keys) + len(self._labels))
        if self._columns and row.fields:
            with contextlib.suppress(ValueError):
                return self._line([*row.fields, *empty])
        return self._line([""] * len(self._columns or self._texts) + empty)

    def _given(self, row: InputRow) -> List[str]:
        """The cells of a row that are not answers."""
        if self._columns:
            return list(row.fields)
        texts = [row.item] if isinstance(row.item, str) else row.item or ()
        return [text.rstrip("\r\n") for text in texts]  # a .tsv cannot hold line ends

    def _line(self, cells: List[Any]) -> str:
        """The line of a row. Not by `csv.writer`: what it quotes, and whether it takes NUL, depends on the Python.

        Raises:
            ValueError: a .tsv, whose rows are lines, cannot hold a cell.
        """
        texts = ["" if cell is None else str(cell) for cell in (cells if self._raw_cells else _inert(cells))]
        if not self._quoted:
            return line_of_fields(texts, "\t") + "\n"
        texts = [in_quotes(text) if self._special.search(text) else text for text in texts]
        return self._delimiter.join(texts) + "\n"


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _inert(cells: Sequence[Any]) -> Iterator[Any]:
    """The cells of a row, as no spreadsheet program runs them. Numbers stay numbers."""
    behind_number = False  # that has a sign: a program that splits elsewhere may read on
    for cell in cells:
        text = "" if cell is None else str(cell)
        if _NUMBER.match(text):
            behind_number = behind_number or text[0] in "+-"
        elif text and isinstance(cell, str):
            cell = _LATER_FORMULA.sub(r"\1'", cell)
            runs = _FORMULA.match(cell) or (behind_number and _CONTINUATION.match(cell))
            behind_number = bool(_ENDS_WITH_NUMBER.search(cell))
            cell = f"'{cell}" if runs else cell
        yield cell
