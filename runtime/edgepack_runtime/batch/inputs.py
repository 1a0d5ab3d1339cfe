"""Reads rows of a file or stream one by one: each is a text, a pair of texts, or an error.

Reading continues after an invalid row. Blank lines are counted, and are no rows.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from edgepack_runtime.errors import UsageError
from edgepack_runtime.messages import Message, message
from edgepack_runtime.rows import encodings
from edgepack_runtime.rows.formats import BY_SUFFIX, JSON, SUFFIXES, TABLES
from edgepack_runtime.rows.items import item_from_fields, require_text
from edgepack_runtime.rows.lines import (
    SAVE_AS_CSV,
    NotUtf8Error,
    RowError,
    as_utf8,
    begun,
    open_stream,
    refuse_non_text,
    with_line_feeds,
)
from edgepack_runtime.rows.reader import BROKEN_CSV, Rows
from edgepack_runtime.rows.table import Table
from edgepack_runtime.util.fs import os_errors
from edgepack_runtime.util.texts import ENCODINGS, UTF8, UTF16, Item, is_unseen

_WORKBOOKS = (".xlsx", ".xls", ".ods")
# Commas, quotes, UTF-8: by default it writes in the encoding of the locale, and Chinese becomes `?` under LANG=C.
_TO_CSV = "soffice --headless --convert-to 'csv:Text - txt - csv (StarCalc):44,34,76'"
MAX_LINE_BYTES = 4 * 1024 * 1024  # of one line; the tokenizer needs 300 MiB for a word of that size
STDIN = message("error.stdin")
_FIXES = ("error.name_column", "error.name_second")
_LONG_ROW = 50  # lines of one row; a quotation mark that nobody closed takes in all lines up to the next one
_SHOWN = 5  # of these
_SHOWN_NAMES, _NAME_CHARACTERS = 20, 40  # of columns


class InputRow(NamedTuple):
    """A row: either an item or an error. It begins on line `line`, from 1, and ends at byte `end` of the source.

    `fields` are all cells of a row of a table; empty ones if it could not be read.
    """

    line: int
    item: Optional[Item]
    error: Optional[UsageError]
    end: int
    fields: Sequence[str] = ()


class Source:
    """Rows of a file or stream.

    Args:
        stream: UTF-8.
        name: its name in messages.
        suffix: the format, one of `SUFFIXES`.
        columns: one column, or two for pairs. A .txt has no columns; a tab separates its pairs.
        encoding: the encoding of the file, for messages.
        blank_rows: a blank line is an invalid row: whoever feeds a pipe counts lines.

    Raises:
        UsageError: the header of a table lacks a column.
    """

    def __init__(
        self,
        stream: io.BufferedReader,
        name: str,
        suffix: str,
        columns: Sequence[str],
        *,
        encoding: str = UTF8,
        blank_rows: bool = False,
    ) -> None:
        self.file = Rows(stream, name, BY_SUFFIX[suffix], most_line_bytes=MAX_LINE_BYTES)
        self._name, self._suffix, self._columns, self._blank_rows = name, suffix, columns, blank_rows
        self._encoding = encoding
        self.header: Sequence[str] = ()  # of a table
        self.total_bytes: Optional[int] = None  # about, of UTF-8; None if it is not known
        self._long: List[str] = []  # rows of a table that look like several, by their lines
        self._found: Iterator[Any]
        if suffix in TABLES:
            try:
                self._table = Table(self.file)
            except RowError as error:
                raise self._refused(error) from error
            self.header, self._found = self._table.first, self._table.below()
            self._places = [self.place(*column) for column in zip(columns, _FIXES)]
        else:
            self._found = self.file.records() if self.file.format.kind == JSON else self.file.texts()

    def notes(self) -> Iterator[str]:
        """What to know about the rows that were read."""
        if self.file.blank:
            yield message("rows.blank", n=self.file.blank)
        for lines in self._long[:_SHOWN]:
            yield message("rows.long", lines=lines, name=self._name)
        if len(self._long) > _SHOWN:
            yield message("rows.more_long", n=len(self._long) - _SHOWN, lines=_LONG_ROW)

    def rows(self) -> Iterator[InputRow]:
        """The next rows.

        Raises:
            UsageError: the rest cannot be read.
        """
        rows, lines, width = self.file, self.file.lines, len(self.header)
        read: Any = self._of_json if rows.format.kind == JSON else self._of_fields if width else self._of_line
        for number, found in self._found:
            if rows.last - number >= _LONG_ROW:
                self._long.append(message("span.to", low=number, high=rows.last))
            if isinstance(found, RowError):
                if found.ends:
                    raise self._refused(found)
                fields = [*found.fields, *[""] * width][:width]  # as many cells as the header has
                yield InputRow(number, None, self._refused(found), lines.offset, fields)
            elif self._suffix == ".txt" and not self._blank_rows and is_unseen(found):
                rows.blank += 1
            else:
                try:
                    item, error = read(found, partial(self._line, number)), None
                except UsageError as invalid:
                    item, error = None, invalid
                yield InputRow(number, item, error, lines.offset, found if width else ())

    def _line(self, number: Optional[int]) -> str:
        return message("error.line_of", line=number, name=self._name, lines="")

    def _of_line(self, line: str, where: Callable[[], str]) -> Item:
        return _pair_of_line(line, where) if len(self._columns) == 2 else require_text(line, where)

    def _of_fields(self, fields: Sequence[str], where: Callable[[], str]) -> Item:
        for column, place in zip(self._columns, self._places):
            if is_unseen(fields[place]):
                cell = message("error.cell_of", column=column, where=where())
                fix = message("error.go_on", other=message("error.write_or_remove"))
                raise UsageError(message("error.empty", name=cell), fix=fix)
        return item_from_fields([fields[place] for place in self._places], where)

    def _of_json(self, record: Dict[str, Any], where: Callable[[], str]) -> Item:
        missing = next((column for column in self._columns if column not in record), None)
        if missing is not None:
            raise UsageError(
                message("error.no_key", where=where(), keys=[f"`{column}`" for column in self._columns]),
                why=message("error.lacks_key", key=missing),
                fix=message("error.name_key"),
            )
        fields = [record[column] for column in self._columns]
        for column, value in zip(self._columns, fields):
            if not isinstance(value, str):
                raise UsageError(message("error.no_string", key=column, where=where()))
        return item_from_fields(fields, where)

    def place(self, column: str, fix: str = "error.name_one") -> int:
        """The position of a column of a table.

        Raises:
            UsageError: it is not there, or more than once.
        """
        found = self._table.places(column)
        if len(found) == 1:
            return found[0]
        alike = [name for name in self.header if name.strip().lower() == column.lower()]
        raise UsageError(
            message("error.columns" if found else "error.no_column", name=str(self._name), column=column),
            why=message("error.columns_are", names=", ".join(map(_name, self.header[:_SHOWN_NAMES]))),
            fix=message("error.rename") if found else message(fix, name=repr(alike[0]) if alike else "NAME"),
        )

    def _refused(self, error: RowError) -> UsageError:
        if isinstance(error, NotUtf8Error):
            return UsageError(
                message("error.line_encoding", line=self._line(error.line), encoding=self._encoding.upper()),
                why=message("error.invalid_bytes"),
                fix=message("error.save_as_utf8"),
            )
        lines = message("error.up_to", line=self.file.last) if self.file.last > (error.line or 0) else ""
        return _refusal(error, self._name, lines if error.kind == BROKEN_CSV else "")


def _name(column: str) -> str:
    """The name of a column in a message: the first line of a table without a header may be a whole text."""
    return column if len(column) <= _NAME_CHARACTERS else column[:_NAME_CHARACTERS] + "..."


def _refusal(error: RowError, name: str, lines: str = "") -> UsageError:
    """An error about the file `name`, or about a line of it."""
    where = name if error.line is None else message("error.line_of", line=error.line, name=name, lines=lines)
    return UsageError(message("error.is", name=where, what=error.what), why=error.why, fix=error.fix)


def _pair_of_line(line: str, where: Callable[[], str]) -> Item:
    fields = require_text(line, where).split("\t")
    if len(fields) != 2:
        raise UsageError(message("error.no_pair", where=where()), why=message("error.tabs_of_pair", n=len(fields) - 1))
    return item_from_fields(fields, where)


def check_file(path: Path) -> None:
    """Check that `path` is a file in a known format.

    Raises:
        UsageError: there is no such file, or its suffix is unknown.
    """
    if str(path) == "-":
        raise UsageError(message("error.input_dash"), fix=message("error.omit_input"))
    if path.is_dir():
        raise UsageError(message("error.is_folder", path=path))
    if path.suffix.lower() in _WORKBOOKS:
        fix = message("encoding.or_libreoffice", save=SAVE_AS_CSV, command=f"{_TO_CSV} {shlex.quote(str(path))}")
        raise UsageError(message("error.workbook", name=path.name), fix=fix)
    if path.suffix.lower() not in SUFFIXES:
        fix = message("error.endings", endings=" ".join(SUFFIXES))
        raise UsageError(message("error.no_ending", name=path.name), fix=fix)
    if not path.is_file():
        raise UsageError(message("error.no_file", path=str(path)))


def _require_encoding(sample: bytes, name: str, encoding: str) -> None:
    """Refuse a file that is by and large in another encoding. Single such lines are rows without an answer.

    Args:
        sample: the first bytes of the file.
    """
    try:
        refuse_non_text(sample, name)
    except RowError as error:
        raise _refusal(error, name) from error
    guess = encodings.recognise(sample)
    certain = None if guess is None else guess.certain
    if guess is not None and certain is None and guess.is_asian and encoding == UTF8:
        why, fix = encodings.uncertain(guess, name)
        raise UsageError(message("error.encoding", name=name, encoding="UTF-8"), why=why, fix=fix)
    found = None if certain is None else certain.name.lower()
    if guess is None and encodings.is_surely_utf8(sample):
        found = UTF8
    if found == encoding or (found is None and encoding != UTF16):
        return
    fix = message("error.omit_encoding")
    if certain is not None:
        give = message("error.give_encoding", encoding=found)
        fix = give if found in ENCODINGS else encodings.conversion(certain.iconv, name)
    why = message("error.no_mark") if found is None else message("error.seems", encoding=found.upper())
    raise UsageError(message("error.encoding", name=name, encoding=encoding.upper()), why=why, fix=fix)


@contextlib.contextmanager
def opened(
    path: Path, column: str = "text", pair_column: Optional[str] = None, encoding: str = UTF8
) -> Iterator[Source]:
    """Open a file: .txt has one row per line; .tsv and .csv (with a header) and .jsonl have the values of `column`.

    The row of a .tsv is one line; whether its quotation marks are part of a field, the line alone tells.

    Args:
        column: column of the texts.
        pair_column: column of the second texts; None for single texts. In a .txt a tab separates pairs.
        encoding: one of `texts.ENCODINGS`.

    Raises:
        UsageError: there is no such file or column, or it has another encoding.
        EnvironmentUnfitError: it cannot be read, also later in the context.
    """
    check_file(path)
    columns = [column] if pair_column is None else [column, pair_column]
    with contextlib.ExitStack() as stack:
        with os_errors(f"{path} cannot be read"):
            stream = stack.enter_context(open_stream(path))
            sample = stream.peek(encodings.SAMPLE_BYTES)
            text = _checked(stream, path.name, encoding)
            text = with_line_feeds(text, path) if encoding == UTF8 else text
            source = Source(text, path.name, path.suffix.lower(), columns, encoding=encoding)
            # `InputRow.end` counts bytes of UTF-8: of another encoding the sample tells how many there will be.
            share = len(sample.decode(_codec(encoding), "ignore").encode()) / max(1, len(sample))
            source.total_bytes = round(path.stat().st_size * share)
        yield source


def standard_input(columns: Sequence[str], encoding: str = UTF8) -> Source:
    """The rows on standard input, one per line. The first line or more decides whether it is in `encoding`.

    Raises:
        UsageError: it has another encoding.
        EnvironmentUnfitError: it cannot be read.
    """
    stream = sys.stdin.buffer
    assert isinstance(stream, io.BufferedReader)
    with os_errors(f"{STDIN} cannot be read"):
        text = _checked(begun(stream), STDIN, encoding)
    return Source(text, STDIN, ".txt", columns, encoding=encoding, blank_rows=True)


def _checked(stream: io.BufferedReader, name: str, encoding: str) -> io.BufferedReader:
    """`stream` as UTF-8. Raises as `_require_encoding`."""
    _require_encoding(stream.peek(encodings.SAMPLE_BYTES), name, encoding)
    return as_utf8(stream, _codec(encoding))


def _codec(encoding: str) -> str:
    return next((one.codec for one in encodings.CONVERTED if one.name.lower() == encoding), encoding)


def items(source: Source) -> Iterator[Item]:
    """The items of `source`.

    Raises:
        UsageError: a row is invalid; names its line.
    """
    for row in source.rows():
        if row.item is None:
            assert row.error is not None
            raise row.error
        yield row.item


def require_rows(path: Path, column: str, pair_column: Optional[str], encoding: str) -> None:
    """Check that a file can be read and has a row, valid or not. Raises as `opened`; UsageError if it is empty."""
    with opened(path, column, pair_column, encoding) as source, os_errors(f"{path} cannot be read"):
        if next(source.rows(), None) is None:
            raise no_text(path)


def read_texts(path: Path, column: str = "text", pair_column: Optional[str] = None, encoding: str = UTF8) -> List[Item]:
    """All items of a file. Raises as `opened` and `items`; UsageError if it is empty."""
    with opened(path, column, pair_column, encoding) as source, os_errors(f"{path} cannot be read"):
        try:
            found = list(items(source))
        except UsageError as error:
            if isinstance(error.fix, Message) and error.fix.id == "error.go_on":
                error.fix = error.fix.fields["other"]  # no caller takes --output
            raise
    if not found:
        raise no_text(path)
    return found


def no_text(path: Union[Path, str]) -> UsageError:
    """The error for an empty file or stream."""
    if isinstance(path, Path):
        return UsageError(message("error.no_text", name=path.name))
    return UsageError(message("error.no_text", name=path))
