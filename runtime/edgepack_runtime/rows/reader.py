"""Reader of rows: of tables, JSON lines and plain lines, one by one, with the line on which each begins.

A row that cannot be read is an error in its place, and the rows after it are read.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections import Counter
from shlex import quote
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from edgepack_runtime.messages import message
from edgepack_runtime.rows.encodings import SAMPLE_BYTES
from edgepack_runtime.rows.formats import (
    SAMPLE_ROWS,
    SEPARATORS,
    TABLE,
    Dialect,
    RowFormat,
    dialect_of,
    in_quotes,
    likely_separator,
    rename,
)
from edgepack_runtime.rows.lines import MAX_LINE_BYTES, Lines, NotUtf8Error, RowError
from edgepack_runtime.util import json_levels

Cells = Tuple[int, Union[List[str], RowError]]  # with the line from 1 on which the row begins
Record = Tuple[int, Union[Dict[str, Any], RowError]]
Text = Tuple[int, Union[str, RowError]]

NOT_JSON = "lines that are not JSON"
NO_OBJECT = "lines that are not JSON objects"
BROKEN_CSV = "broken CSV"
# One list of objects, also as `data` of an object, as SQuAD and others have it.
_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:"version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*)?\[(?=\s*\{)')
_LONGEST_LINES = 16  # a list is read as a whole, and has at most so many times the bytes of the longest line
# The csv module of Python 3.8 to 3.10 refuses NUL. No byte of a file becomes this character.
_NUL, _OTHER = "\0", "\udc00"


class Rows:
    """Rows of a stream in a known format. It is iterated once, by `cells`, `records` or `texts`.

    Args:
        stream: UTF-8, as from `lines.as_utf8`.
        name: the file's name, for messages.
        row_format: the separator of a .csv is found in its first lines.
        most_line_bytes: a longer line is an error.
    """

    def __init__(
        self, stream: io.BufferedReader, name: str, row_format: RowFormat, *, most_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.name, self.format, self._stream = name, row_format, stream
        self._dialect = Dialect(",", quoted=False, escaped=False, is_said=False)
        self.lines = Lines(stream, most_line_bytes)
        self._most_line, self._most_bytes = most_line_bytes, _LONGEST_LINES * most_line_bytes
        self.blank = 0  # lines without a row, of JSON lines
        self.last = 0  # the last line of the latest row of a quoted table
        self.content = ""  # the latest line of JSON
        self._holds_nul = False
        self._row_bytes = 0  # about, of the row that is read
        if row_format.kind == TABLE:
            csv.field_size_limit(MAX_LINE_BYTES)  # the default limit, 128 KiB, is shorter than some documents
            self._dialect = dialect_of(_first_lines(stream.peek(SAMPLE_BYTES)), row_format)
            self.format = row_format._replace(separator=self._dialect.separator, quoted=self._dialect.quoted)

    @property
    def separator(self) -> str:
        """The separator of a table."""
        return self._dialect.separator

    def texts(self) -> Iterator[Text]:
        """Every line with its end, blank ones too."""
        lines = self.lines
        for number, line in enumerate(lines, start=1):
            if lines.failed:
                yield number, lines.error()
            elif number == 1 and "\r" in line.rstrip("\r\n"):
                yield number, _old_line_ends()
            else:
                yield number, line

    def cells(self) -> Iterator[Cells]:
        """Fields of each row of a table. A blank line has no field, or one that is blank."""
        if self.format.quoted:
            yield from self._quoted_cells()
            return
        separator, width = self.separator, 0
        for number, line in self.texts():
            if isinstance(line, str):
                fields = fields_of_line(line.rstrip("\r\n"), separator, width)
                width = width or (len(fields) if line.strip() else 0)
                yield number, fields
            else:
                yield number, line

    def _quoted_cells(self) -> Iterator[Cells]:
        lines = self.lines
        above = int(self._dialect.is_said)  # lines that the csv module does not see
        escape = "\\" if self._dialect.escaped else None
        table = csv.reader(self._csv_lines(), delimiter=self.separator, escapechar=escape, strict=True)
        while True:
            first, self._row_bytes = table.line_num + above + 1, 0
            found: Union[List[str], RowError]
            try:
                found = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                what, fix = message("rows.no_row"), message("rows.quote")
                found = RowError(
                    first, what, fix, why=message("rows.syntax", said=str(error), form="CSV"), kind=BROKEN_CSV
                )
            self.last = table.line_num + above
            if self._row_bytes > self._most_line:
                what, fix = message("rows.no_row"), message("rows.stray_quotes")
                why = message("rows.goes_on", mib=self._most_line >> 20)
                yield first, RowError(first, what, fix, why=why, kind=BROKEN_CSV, ends=True)
                return
            if lines.failed:
                found = lines.error()
            elif self._holds_nul and isinstance(found, list):
                found = [field.replace(_OTHER, _NUL) for field in found]
            yield first, found

    def _csv_lines(self) -> Iterator[str]:
        """Lines for the csv module, which does not split at the `\\r` that ends lines of old Macs."""
        # MySQL writes nothing as `\N`. The csv module would read the escaped letter, and `N` may be a label.
        nothing = re.compile(rf"(?<![^{re.escape(self.separator)}])\\N(?=[{re.escape(self.separator)}\r\n]|\Z)")
        for line in itertools.islice(self.lines, int(self._dialect.is_said), None):
            self._row_bytes += len(line)
            if self._row_bytes > self._most_line:
                return
            if self._dialect.escaped and "\\N" in line:
                line = nothing.sub(r"\\\\N", line)
            if _NUL in line:
                self._holds_nul, line = True, line.replace(_NUL, _OTHER)
            if "\r" in line.rstrip("\r\n"):
                yield from io.StringIO(line, newline="")
            else:
                yield line

    def records(self) -> Iterator[Record]:
        """The object of each line that is not blank; or those of one list, with the lines on which they begin."""
        if (start := self._start_of_list()) is not None:
            yield from self._listed(start)
            return
        first, keys = True, 0
        for number, line in self.texts():
            if isinstance(line, RowError):
                yield number, line
            elif content := line.strip():
                self.content = content
                found = (first and self._other_format(number, content)) or parse_object(number, content, keys)
                keys = len(found) if isinstance(found, dict) else keys
                yield number, found
            else:
                self.blank += 1
                continue
            first = False

    @property
    def is_list(self) -> bool:
        """Whether the file is one JSON list of objects; before the first row is read."""
        return self._start_of_list() is not None

    def _start_of_list(self) -> Optional[int]:
        sample = self._stream.peek(SAMPLE_BYTES)
        found = _DOCUMENT.match(sample)
        line, _, below = sample.partition(b"\n")
        if found is None or (b"{" in found[0] and below.strip() and _is_object(line)):
            return None  # lines of objects, of which the first has a list as `data`
        return found.end()

    def _listed(self, start: int) -> Iterator[Record]:
        """The objects of a list that begins before byte `start`, each with its line; where a line has several objects,
        the later ones count on, so that no two rows have the same number."""
        raw = self._stream.read(self._most_bytes + 1)
        self.lines.number, self.lines.offset = 1, len(raw)
        if len(raw) > self._most_bytes:
            what = f"is one JSON list of more than {self._most_bytes >> 20} MiB"
            yield 1, RowError(None, what, _one_per_line(self.name), ends=True)
            return
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            mixed = not raw[: error.start].isascii()
            yield line, NotUtf8Error(line, message("encoding.is_not"), mixed=mixed, sample=raw, ends=True)
            return
        decode = json.JSONDecoder(object_pairs_hook=_unique).raw_decode
        line, counted, number = 1, 0, 0
        place = start - 2 * raw.startswith(codecs.BOM_UTF8)  # bytes before it are ASCII, but for the mark
        is_within = "{" in text[:place]
        while True:
            place = _behind_space(text, place)
            if number and not text.startswith(("]", ","), place):
                yield line, RowError(line, "lacks a comma between two items of a list", kind=NOT_JSON, ends=True)
                return
            if text.startswith("]", place):
                break
            place = _behind_space(text, place + 1) if number else place
            line, counted = line + text.count("\n", counted, place), place
            number = max(line, number + 1)
            try:
                found, end = decode(text, place)
                json_levels.require_flat(found, text.count("[", place, end) + text.count("{", place, end))
            except (ValueError, RecursionError) as error:
                why, fix = _why_not_json(error), "end the list with `]`"
                yield number, RowError(line, "begins what is not JSON", fix, why=why, kind=NOT_JSON, ends=True)
                return
            self.content, place = text[place:end], end
            what = "has an item of the list that is not an object"
            yield number, found if isinstance(found, dict) else RowError(line, what, kind=NO_OBJECT, fatal=False)
        rest = text[place + 1 :]
        if not (_is_object('{"data": []' + rest) if is_within else not rest.strip()):
            what = "holds more behind its list of objects"
            yield number + 1, RowError(None, what, _one_per_line(self.name), ends=True)

    def _other_format(self, number: int, first: str) -> Optional[RowError]:
        """The error of a file that begins with `first` and holds no JSON lines; None if it may."""
        if first.startswith("["):
            return RowError(number, "begins a JSON list that holds no objects", _one_per_line(self.name))
        found = None if first.startswith("{") else likely_separator([first])
        if found is None:
            return None
        return RowError(
            number,
            message("rows.separated", by=message(SEPARATORS[found])),
            rename(self.name, ".tsv" if found == "\t" else ".csv"),
        )


def fields_of_line(line: str, separator: str, width: int = 0) -> List[str]:
    """The fields of a line without its end, of a table whose quotes are text.

    A spreadsheet and pandas put a field in quotes if it needs them: it holds the separator, or a quote, which they
    double. The line alone decides that, so that no text with quotes changes the row of another.

    Args:
        width: fields of a row; 0 if that is not known.
    """
    fields = line.split(separator)
    if '"' not in line or _NUL in line:
        return fields
    doubled = any(one.startswith('"') and one.endswith('"') and '""' in one[1:-1] for one in fields)
    if not width or (len(fields) == width and not doubled):
        return fields
    try:
        [quoted] = csv.reader([line], delimiter=separator, strict=True)
    except (csv.Error, ValueError):
        return fields
    return quoted if len(quoted) == width else fields


def line_of_fields(fields: Sequence[str], separator: str) -> str:
    """The line, without its end, of which `fields_of_line` gives these fields.

    Raises:
        ValueError: no line of such a table gives them.
    """
    quoted = (in_quotes(one) if '"' in one or separator in one else one for one in fields)
    for form in (fields, quoted):  # the second one is made only if it is needed
        line = separator.join(form)
        if "\r" not in line and "\n" not in line and fields_of_line(line, separator, len(fields)) == list(fields):
            return line
    raise ValueError("a row is one line, and a cell holds a line break, or NUL and a separator")


def parse_object(number: int, content: str, keys: int = 0) -> Union[Dict[str, Any], RowError]:
    """The JSON object of line `number`, or the error. It is read fastest if it has `keys` keys and is flat."""
    try:
        # A colon follows each key: an object with no more colons than keys has no key twice.
        colons = content.count(":")
        found = json_levels.loads(content) if colons <= keys else None
        if found is None or (isinstance(found, dict) and len(found) < colons):
            found = json_levels.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return RowError(number, message("rows.no_json"), "", why=_why_not_json(error), kind=NOT_JSON, fatal=False)
    if isinstance(found, dict):
        return found
    return RowError(number, message("rows.no_object"), "", kind=NO_OBJECT, fatal=False)


def _is_object(text: Union[str, bytes]) -> bool:
    try:
        return isinstance(json.loads(text, object_pairs_hook=_unique), dict)
    except (ValueError, RecursionError):
        return False


def _behind_space(text: str, place: int) -> int:
    while text[place : place + 1].isspace():
        place += 1
    return place


def _why_not_json(error: Exception) -> str:
    if isinstance(error, _RepeatedKeyError):
        return message("rows.twice", key=error.key)
    if isinstance(error, json.JSONDecodeError):
        return message("rows.syntax", said=error.msg, form="JSON")
    return message("rows.out_of_bounds")


def _one_per_line(name: str) -> str:
    command = f"jq -c '.[]' {quote(name)} > {quote(f'lines-{name}')}"
    return message("rows.one_per_line", command=command)


class _RepeatedKeyError(ValueError):
    """Refuse duplicate keys, of which json would drop one silently."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _RepeatedKeyError(twice[:40])
    return made


def _old_line_ends() -> RowError:
    fix = message("encoding.convert", command="tr '\\r' '\\n' < FILE > CONVERTED")
    return RowError(None, message("rows.old_line_ends"), fix)


def _first_lines(sample: bytes) -> List[str]:
    """The first lines of `sample`, without one that it cuts."""
    sample = sample[:SAMPLE_BYTES]
    whole = sample[: sample.rfind(b"\n") + 1] or sample
    return io.StringIO(whole.decode("utf-8-sig", "replace"), newline=None).read().split("\n")[:SAMPLE_ROWS]
