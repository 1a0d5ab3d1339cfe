"""Reader of the rows of one data file, with findings.

TSV is split at tabs only: quotes are ordinary characters, as in Chinese corpora. CSV is read by the csv module. JSONL
has one object per line. CoNLL has a token and its tag on each line, and blank lines between sentences. All are UTF-8,
with or without a byte order mark. TSV and CSV start with a header, unless `data.columns` has numbers. Blank lines are
skipped.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path

from edgepack.artifacts import Row
from edgepack.data.finding_log import FindingLog
from edgepack.data.header import (
    Cells,
    Wanted,
    check_numbers,
    find_columns,
    names_separator,
    not_json_lines,
    positions_by_number,
)
from edgepack.data.lines import (
    MAX_LINE_BYTES,
    FileFormat,
    UnreadableError,
    form_by_suffix,
    no_progress,
    old_line_ends,
    text_lines,
)
from edgepack.data.quotes import REMEMBERED_EVERY, REMEMBERED_FIRST, Quotes
from edgepack.data.rows import Values, has_half, row_maker, sentences, tagged_row
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import Columns
from edgepack.util.text import counted

Record = tuple[int, Values]  # line from 1, the values of the wanted columns

_EXAMPLES = {
    "labels": '["...", "..."]',
    "spans": '[{"start": 0, "end": 2, "label": "..."}]',
    "tokens": '["...", "..."]',
    "tags": '["B-...", "I-..."]',
}
_TEXT = '"..."'


def read_rows(
    file: Path,
    columns: Columns,
    log: FindingLog,
    advance: Callable[[int], None] = no_progress,
    form: FileFormat | None = None,
    label_separator: str = "|",
) -> Iterator[tuple[int, Row]]:
    """Rows of one split with the line (from 1) on which each starts; one row is in memory at a time.

    Errors of the content are logged as findings, never raised. Rows with an error are dropped, so the rows are complete
    only if no finding is an error. `advance` counts bytes, as in `text_lines`. `form` is by default that of the file's
    suffix; `label_separator` is `data.label_separator`.
    """
    form = form or form_by_suffix(file)
    try:
        if form.tagged:
            for line, tokens, tags in sentences(text_lines(file, advance, form.encoding), log):
                row = tagged_row(line, tokens, tags, log)
                if row is not None:
                    yield line, row
            return
        make = row_maker(columns, label_separator)
        for line, values in read_records(file, columns.wanted, log, advance, form):
            row = make(line, values, log)
            if row is not None:
                yield line, row
    except UnreadableError as error:
        log.end("unreadable", error.finding.line, error.finding.reason, error.finding.fix)


def read_records(
    file: Path, wanted: Wanted, log: FindingLog, advance: Callable[[int], None], form: FileFormat
) -> Iterator[Record]:
    """The values of the `wanted` columns of each row of a table or of JSON lines; arguments as in `read_rows`.

    Raises:
        UnreadableError: the rest of the file cannot be read.
    """
    lines = text_lines(file, advance, form.encoding)
    if form.separator is None:
        return _json_records(lines, wanted, log)
    return _table_records(cells(lines, form.separator, log), wanted, log)


def cells(lines: Iterator[str], separator: str, log: FindingLog) -> Iterator[Cells]:
    """Fields of each row that is not blank; fields between commas or semicolons may be quoted."""
    return _csv_cells(lines, separator, log) if separator in ",;" else _plain_cells(lines, separator, log)


def _plain_cells(lines: Iterator[str], separator: str, log: FindingLog) -> Iterator[Cells]:
    for number, line in enumerate(lines, start=1):
        if number == 1 and (instead := old_line_ends(line)) is not None:
            raise UnreadableError(Finding("error", log.file, None, *instead))
        fields = line.removesuffix("\n").removesuffix("\r").split(separator)
        if _is_filled(number, fields, log):
            yield number, fields


def _csv_cells(lines: Iterator[str], separator: str, log: FindingLog) -> Iterator[Cells]:
    csv.field_size_limit(MAX_LINE_BYTES)  # the default limit, 128 KiB, is shorter than some documents
    reader = csv.reader(_at_any_line_end(lines), delimiter=separator, strict=True)
    quotes = Quotes(separator, log)
    while True:
        line = reader.line_num + 1  # a row may span lines; findings name its first line
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fix = 'a text that holds a comma, a quote or a line end is put in quotes, and a quote in it is `""`'
            log.end("broken CSV", line, f"broken CSV from here on: {error}", fix)
            return
        if reader.line_num > line:
            if quotes.hold(line, reader.line_num, fields):
                return
        elif line < REMEMBERED_FIRST or not line % REMEMBERED_EVERY:
            quotes.remember(fields)
        if _is_filled(line, fields, log):
            yield line, fields


def _at_any_line_end(lines: Iterator[str]) -> Iterator[str]:
    """CSV from old Macs ends its lines with `\\r` only, at which the csv module does not split."""
    for line in lines:
        if "\r" in line:
            yield from io.StringIO(line, newline="")
        else:
            yield line


def _is_filled(line: int, fields: list[str], log: FindingLog) -> bool:
    if any(content.strip() for content in fields):
        return True
    if len(fields) > 1:
        log.add("empty rows", "warning", line, "this row holds separators and nothing else", "remove it")
    return False


def _table_records(table: Iterator[Cells], wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    """The wanted values of each row, after the columns were found."""
    first = next(table, None)
    if first is None:
        log.end("empty", None, "the file holds no row", "give a file with rows")
        return
    if (instead := names_separator(first[1], log.file)) is not None:
        log.end("separator", first[0], *instead)
        return
    positions = positions_by_number(wanted)
    if positions is not None:
        if not check_numbers(first, wanted, positions, log):
            return
        head, table = "the first row", chain([first], table)
    else:
        positions, head = find_columns(first, table, wanted, log), "the header"
        if positions is None:
            return
    # For a single position `itemgetter` returns no tuple.
    values = itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))
    width = len(first[1])
    for number, fields in table:
        if len(fields) == width:
            yield number, values(fields)
            continue
        reason = f"this row has {counted(len(fields), 'field')}, and {head} has {width}"
        fix = "a text must hold no separator: replace it, or put the text in quotes in a .csv file"
        if len(fields) < width:
            fix = "add the missing fields; if the row goes on in the next line, join the two lines"
        log.add("rows with a wrong number of fields", "error", number, reason, fix)


def _json_records(lines: Iterator[str], wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    shown = ", ".join(f'"{name}": {_EXAMPLES.get(key, _TEXT)}' for key, name in wanted.items())
    fix = f"write one object per line: {{{shown}}}"
    first = True
    for number, line in enumerate(lines, start=1):
        content = line.strip()
        if not content:
            continue
        if first and (instead := old_line_ends(content)) is not None:
            raise UnreadableError(Finding("error", log.file, None, *instead))
        if first and (instead := not_json_lines(content, log.file)) is not None:
            log.end("no JSON lines", number, *instead)
            return
        first = False
        try:
            record = json.loads(content, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            explained = isinstance(error, json.JSONDecodeError | _RepeatedKeyError)
            why = str(error.args[0]).partition(": line ")[0] if explained else "a value is out of all bounds"
            log.add("lines that are not JSON", "error", number, f"this line is not JSON: {why}", fix)
            continue
        if not isinstance(record, dict):
            log.add("lines that are not JSON objects", "error", number, "this line is not a JSON object", fix)
            continue
        values = _values(number, record, wanted, log)
        # Only an escape can be a lone surrogate; to search every text would take longer than to read it.
        if values and "\\u" in content and has_half(*values):
            reason = "an escape such as \\ud83d stands alone: half a character"
            log.add("half characters", "error", number, reason, "write the character itself, or remove the row")
        elif values:
            yield number, values


def _values(number: int, record: Mapping[str, object], wanted: Wanted, log: FindingLog) -> Values | None:
    try:
        return [record[key] for key in wanted.values()]
    except KeyError:
        missing = [key for key in wanted.values() if key not in record]
    shown = listed(name[:40] for name in list(record)[:20]) or "nothing"
    reason = f"this line lacks {listed(missing)}; it has {shown}"
    otherwise = f"set `data.columns`{log.columns_place} to the keys that hold {' and '.join(wanted)}"
    log.add("lines that lack a key", "error", number, reason, did_you_mean(missing[0], set(record), otherwise))
    return None


class _RepeatedKeyError(ValueError):
    """Refuse duplicate keys, of which json would drop one silently."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RepeatedKeyError(f"the key `{twice[:40]}` stands twice")
    return made
