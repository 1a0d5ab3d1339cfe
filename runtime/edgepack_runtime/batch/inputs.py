"""Reads rows of a file or stream one by one: each is a text, a pair of texts, or an error.

Reading continues after an invalid row. Blank lines are counted, and are no rows.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Union

from edgepack_runtime.errors import UsageError
from edgepack_runtime.util.fs import os_errors
from edgepack_runtime.util.texts import GB18030, UTF8, UTF16, Item, counted, item_from_fields, require_text

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
TABLES = (".tsv", ".csv")
_WORKBOOKS = (".xlsx", ".xls", ".ods")
_SAVE_AS_CSV = "save it in the spreadsheet program as CSV UTF-8, and give that file"
_SAMPLE_BYTES = 2**16
MAX_LINE_BYTES = 4 * 1024 * 1024  # of one line; the tokenizer needs 300 MiB for a word of that size
STDIN = "standard input"
_CSV_FIELD_LIMIT = 16 * 1024 * 1024  # the csv module's default, 128 KiB, is shorter than some documents
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, in the form of Python's `surrogateescape`
_BOM = b"\xef\xbb\xbf"
_OPTIONS = (("--column", "texts"), ("--pair-column", "second texts"))
_LONG_ROW = 50  # lines of one row; a quotation mark that nobody closed takes in all lines up to the next one
_SHOWN = 5  # of these
_GO_ON = "give --output FILE, which leaves such rows without an answer"


class InputRow(NamedTuple):
    """A row: either an item or an error. It begins on line `line`, from 1, and ends at byte `end` of the source.

    `fields` are all cells of a row of a table; empty if it could not be read.
    """

    line: int
    item: Optional[Item]
    error: Optional[UsageError]
    end: int
    fields: Sequence[str] = ()


class Source:
    """Rows of a file or stream.

    Args:
        stream: bytes.
        name: its name in messages.
        suffix: the format, one of `SUFFIXES`.
        columns: one column, or two for pairs. A .txt has no columns; a tab separates its pairs.
        encoding: the encoding of the file, for messages. `stream` is UTF-8.
        blank_rows: a blank line is an invalid row: whoever feeds a pipe counts lines.

    Raises:
        UsageError: the header of a table lacks a column.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        suffix: str,
        columns: Sequence[str],
        *,
        encoding: str = UTF8,
        blank_rows: bool = False,
    ) -> None:
        self._lines = _Lines(stream, name)
        self._name, self._suffix, self._columns, self._blank_rows = name, suffix, columns, blank_rows
        self._encoding = encoding
        self.header: List[str] = []  # of a table
        self.delimiter = ","  # of a .csv
        self.blank = 0  # lines that were skipped
        self._long: List[str] = []  # rows of a table that look like several, by their lines
        self._fields: Sequence[str] = ()
        if suffix in TABLES:
            csv.field_size_limit(_CSV_FIELD_LIMIT)
            self.header = self._read_header()
            self._places = [self.header.index(column) for column in columns]

    @property
    def has_mark(self) -> bool:
        """Whether the first line that was read begins with a byte order mark."""
        return self._lines.has_mark

    def notes(self) -> Iterator[str]:
        """What to know about the rows that were read."""
        if self.blank:
            yield f"{counted(self.blank, 'blank line')} skipped"
        for lines in self._long[:_SHOWN]:
            yield f"note: lines {lines} of {self._name} are one row: check the quotation marks there"
        if len(self._long) > _SHOWN:
            yield f"note: and {counted(len(self._long) - _SHOWN, 'more row')} of {_LONG_ROW} lines or more"

    def rows(self, *, go_on: bool = True) -> Iterator[InputRow]:
        """The next rows; without `go_on` reading ends after an invalid row."""
        self._lines.to_the_end = go_on
        table = self._table(self._lines) if self._suffix == ".csv" else None
        while True:
            number = self._lines.number + 1
            where = f"line {number} of {self._name}"
            self._fields = ()
            try:
                item = self._next(table, where)
            except StopIteration:
                return
            except UsageError as error:
                self._note_long_row(number, table)
                yield InputRow(number, None, error, self._lines.offset, self._fields)
                continue
            self._note_long_row(number, table)
            if item is None:
                self.blank += 1
            else:
                yield InputRow(number, item, None, self._lines.offset, self._fields)

    def _note_long_row(self, number: int, table: Any) -> None:
        if table is not None and self._lines.number - number >= _LONG_ROW:
            self._long.append(f"{number} to {self._lines.number}")

    def _next(self, table: Any, where: str) -> Optional[Item]:
        """The item of the next row; None for a blank line."""
        if table is not None:
            before = self._lines.number
            try:
                fields = next(table)
            except csv.Error as error:
                if self._lines.number > before + 1:
                    where = f"{where}, with the lines up to {self._lines.number},"
                raise _no_row(where, error) from error
            if not fields:
                return None
            for field in fields:
                self._require_decoded(field, where)
            return self._of_fields(fields, where)
        line = next(self._lines)
        if not line.strip() and not self._blank_rows:
            return None
        self._require_decoded(line, where)
        if self._suffix == ".tsv":
            line = line.rstrip("\r\n")
            return self._of_fields(line.split("\t") if line else [], where)
        if self._suffix == ".jsonl":
            return self._of_json(line, where)
        return _pair_of_line(line, where) if len(self._columns) == 2 else require_text(line, where)

    def _of_fields(self, fields: Sequence[str], where: str) -> Item:
        if len(fields) != len(self.header):
            self._fields = [*fields, *[""] * len(self.header)][: len(self.header)]
            fix = "repair that line"
            if self._suffix == ".tsv" and any(field.startswith('"') for field in fields):
                fix += "; a table with quotation marks, as spreadsheet programs write it, is read when it is named .csv"
            raise UsageError(f"{where} has {len(fields)} fields; the header has {len(self.header)}", fix=fix)
        self._fields = fields
        for column, place in zip(self._columns, self._places):
            if not fields[place].strip():
                raise UsageError(
                    f"column `{column}` of {where} is empty", fix=f"{_GO_ON}, or write a text there, or remove the row"
                )
        return item_from_fields([fields[place] for place in self._places], where)

    def _of_json(self, line: str, where: str) -> Item:
        wanted = " and ".join(f"a key `{column}`" for column in self._columns)
        try:
            row = json.loads(line)
            fields = [row[column] for column in self._columns]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            why = f"it has no key `{error.args[0]}`" if isinstance(error, KeyError) else str(error)
            fix = f"name the key that holds the texts: {_OPTIONS[0][0]} NAME" if isinstance(error, KeyError) else ""
            raise UsageError(f"{where} is not a JSON object with {wanted}", why=why, fix=fix) from error
        for column, value in zip(self._columns, fields):
            if not isinstance(value, str):
                raise UsageError(f"`{column}` in {where} is not a text")
        return item_from_fields(fields, where)

    def place(self, column: str) -> int:
        """The position of a further column of a table.

        Raises:
            UsageError: it is not there, or more than once.
        """
        if self.header.count(column) != 1:
            raise UsageError(
                f"{self._name} has {'no' if column not in self.header else 'more than one'} column `{column}`",
                why=f"the first line of a table names its columns; here it names {', '.join(self.header) or 'none'}",
                fix="name one of them",
            )
        return self.header.index(column)

    def _read_header(self) -> List[str]:
        header: List[str] = []
        with _table_errors(f"line 1 of {self._name}"):
            first = next(self._lines, "")
            if not first:
                raise UsageError(f"{self._name} is empty", fix="give a table: its first line names the columns")
            if self._suffix == ".csv":
                # Spreadsheet programs write semicolons where a comma is for decimals, and tabs as "Unicode text".
                self.delimiter = next((one for one in (",", "\t", ";") if one in first), ",")
                header = next(self._table(itertools.chain([first], self._lines)), [])
            else:
                header = first.rstrip("\r\n").split("\t")
        for name in header:
            self._require_decoded(name, f"line 1 of {self._name}")
        for column, (option, which) in zip(self._columns, _OPTIONS):
            if header.count(column) != 1:
                alike = [name for name in header if name.strip().lower() == column.lower()]
                fix = f"name the column that holds the {which}: {option} {repr(alike[0]) if alike else 'NAME'}"
                raise UsageError(
                    f"{self._name} has {'no' if column not in header else 'more than one'} column `{column}`",
                    why=f"the first line of a table names its columns; here it names {', '.join(header) or 'none'}",
                    fix="rename one of them in its first line" if column in header else fix,
                )
        return header

    def _table(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, strict=True, delimiter=self.delimiter)

    def _require_decoded(self, text: str, where: str) -> None:
        if _NOT_UTF8.search(text):
            try:
                text.encode("utf-8", "surrogateescape").decode("utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{where} is not {self._encoding.upper()}",
                    why="some of its bytes are no character in that encoding",
                    fix="correct that line, or save the file as UTF-8",
                ) from error


class _Lines:
    """Lines of a stream, as text with their ends; bytes that are not UTF-8 are escaped (`_NOT_UTF8`)."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self.offset = self.number = 0  # bytes and lines that were read
        self.has_mark = False
        self.to_the_end = True  # in a line that is too long

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.offset += len(line)
        self.number += 1
        number = self.number
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n") and self.to_the_end:
                line = self._stream.readline(2**20)
                self.offset += len(line)
            raise UsageError(
                f"line {number} of {self._name} is longer than {MAX_LINE_BYTES // 2**20} MiB",
                fix="give a text file with one text per line",
            )
        if number == 1 and line.startswith(_BOM):
            self.has_mark, line = True, line[len(_BOM) :]
        return line.decode("utf-8", "surrogateescape")


_NO_TEXT = "edgepack-no-text"  # handler of decoding errors
codecs.register_error(_NO_TEXT, lambda error: ("\udcff", getattr(error, "end", 0)))  # a byte that UTF-8 never has


class _Recoded(io.RawIOBase):
    """A stream of another encoding as UTF-8; what is no text in it is none in UTF-8 either."""

    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)(_NO_TEXT)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            raw = self._stream.read1(_SAMPLE_BYTES)  # of a pipe as much as there is
            self._left = self._decoder.decode(raw, final=not raw).encode("utf-8", "surrogateescape")
            if not raw and not self._left:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


@contextlib.contextmanager
def _table_errors(where: str) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise _no_row(where, error) from error


def _no_row(where: str, error: csv.Error) -> UsageError:
    return UsageError(f"{where} is not a row of a table", why=str(error), fix="check its quotation marks")


def _pair_of_line(line: str, where: str) -> Item:
    fields = require_text(line, where).split("\t")
    if len(fields) != 2:
        raise UsageError(
            f"{where} is not a pair of texts",
            why=f"it has {len(fields) - 1} tabs, and a pair is two texts with one tab between",
        )
    return item_from_fields(fields, where)


def check_file(path: Path) -> None:
    """Check that `path` is a file in a known format.

    Raises:
        UsageError: there is no such file, or its suffix is unknown.
    """
    if str(path) == "-":
        raise UsageError("--input takes the name of a file", fix="omit --input to read standard input")
    if path.is_dir():
        raise UsageError(f"{path} is a folder")
    if path.suffix.lower() in _WORKBOOKS:
        raise UsageError(f"{path.name} is a workbook, and no table of text", fix=_SAVE_AS_CSV)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path.name} has no known ending", fix=f"name it with one of {' '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")


def _require_encoding(sample: bytes, name: str, encoding: str) -> None:
    """Refuse a file that is by and large in another encoding. Single such lines are rows without an answer.

    Args:
        sample: the first bytes of the file.
    """
    if sample.startswith(b"PK\3\4"):
        raise UsageError(f"{name} is a workbook or an archive, and no table of text", fix=_SAVE_AS_CSV)
    found = _encoding_of(sample)
    if encoding == UTF16 and found != UTF16:
        fix = "omit --encoding" if found in (None, UTF8) else f"give --encoding {found}"
        raise UsageError(f"{name} is not UTF-16", why="it has no byte order mark", fix=fix)
    if found in (None, encoding):
        return
    if found == UTF8:
        # A short text in GB18030 may be UTF-8 too, but hardly with a character of three bytes, as Chinese ones are.
        if max(sample.decode("utf-8", "ignore")) >= "\u0800":
            raise UsageError(f"{name} is UTF-8, and not {encoding.upper()}", fix="omit --encoding")
        return
    fix = f"give --encoding {found}" if encoding != UTF8 else f"add --encoding {found}, or save it as UTF-8"
    raise UsageError(f"{name} is not {encoding.upper()}", why=f"it seems to be {found.upper()}", fix=fix)


def _encoding_of(sample: bytes) -> Optional[str]:
    """The probable encoding of a file that begins with `sample`; None for ASCII, and if it is unknown."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF16
    lines = [line for line in sample.split(b"\n") if max(line, default=0) > 127]
    if not lines:
        return None
    if sum(_reads(line, UTF8) for line in lines) >= len(lines) / 2:
        return UTF8
    return GB18030 if all(_reads(line, GB18030) for line in lines) else None


def _reads(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


@contextlib.contextmanager
def opened(
    path: Path, column: str = "text", pair_column: Optional[str] = None, encoding: str = UTF8
) -> Iterator[Source]:
    """Open a file: .txt has one row per line; .tsv and .csv (with a header) and .jsonl have the values of `column`.

    A .tsv has no quoting: quotation marks are part of a field.

    Args:
        column: column of the texts.
        pair_column: column of the second texts; None for single texts. In a .txt a tab separates pairs.
        encoding: one of `texts.ENCODINGS`.

    Raises:
        UsageError: there is no such file or column, or it has another encoding.
        EnvironmentUnfitError: it cannot be read, also later in the context.
    """
    check_file(path)
    with os_errors(f"{path} cannot be read"):
        stream = path.open("rb")
    with stream:
        with os_errors(f"{path} cannot be read"):
            columns = [column] if pair_column is None else [column, pair_column]
            sample = stream.read(_SAMPLE_BYTES)
            stream.seek(0)
            _require_encoding(_lines_of(sample) if len(sample) == _SAMPLE_BYTES else sample, path.name, encoding)
            text = _as_utf8(stream, encoding)
            source = Source(text, path.name, path.suffix.lower(), columns, encoding=encoding)
        yield source


def standard_input(columns: Sequence[str], encoding: str = UTF8) -> Source:
    """The rows on standard input, one per line. The first read decides whether it is in `encoding`.

    Raises:
        UsageError: it has another encoding.
        EnvironmentUnfitError: it cannot be read.
    """
    stream = sys.stdin.buffer
    assert isinstance(stream, io.BufferedReader)
    with os_errors(f"{STDIN} cannot be read"):
        _require_encoding(_lines_of(stream.peek()), STDIN, encoding)
    return Source(_as_utf8(stream, encoding), STDIN, ".txt", columns, encoding=encoding, blank_rows=True)


def _lines_of(sample: bytes) -> bytes:
    """The whole lines of `sample`; all of it if it has none."""
    return sample[: sample.rfind(b"\n") + 1] or sample


def _as_utf8(stream: io.BufferedReader, encoding: str) -> BinaryIO:
    return stream if encoding == UTF8 else io.BufferedReader(_Recoded(stream, encoding), _SAMPLE_BYTES)


def items(source: Source) -> Iterator[Item]:
    """The items of `source`.

    Raises:
        UsageError: a row is invalid; names its line.
    """
    for row in source.rows(go_on=False):
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
            error.fix = error.fix.replace(f"{_GO_ON}, or ", "")  # which takes no --output
            raise
    if not found:
        raise no_text(path)
    return found


def no_text(path: Union[Path, str]) -> UsageError:
    """The error for an empty file or stream."""
    if isinstance(path, Path):
        return UsageError(f"{path.name} holds no text")
    return UsageError(f"{path} holds no text")
