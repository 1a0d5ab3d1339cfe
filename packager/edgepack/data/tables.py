"""Reader of the rows of one data file, with findings.

Tables, JSON lines and CoNLL are read as `edgepack_runtime.rows` reads them. TSV and CSV start with a header, unless
`data.columns` has numbers. Blank lines are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path

from edgepack.artifacts import Row
from edgepack.data.files import explained, format_of, no_progress, opened, refuse_empty
from edgepack.data.header import Cells, Wanted, check_numbers, find_columns, positions_by_number
from edgepack.data.quotes import REMEMBERED_EVERY, REMEMBERED_FIRST, Quotes
from edgepack.data.tagged_tokens import sentences
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import Columns
from edgepack.tasks.cells import has_half
from edgepack.tasks.labelled_spans import tagged_row
from edgepack.tasks.registry import row_maker
from edgepack.tasks.task import Values
from edgepack.util.text import counted
from edgepack_runtime.rows.formats import JSON, TAGGED, RowFormat, refuse_separator_line
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import BROKEN_CSV, Rows

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
    row_format: RowFormat | None = None,
    label_separator: str = "|",
) -> Iterator[tuple[int, Row]]:
    """Rows of one split with the line (from 1) on which each starts; one row is in memory at a time.

    Errors of the content are logged as findings, never raised. Rows with an error are dropped, so the rows are complete
    only if no finding is an error. `advance` counts bytes, as in `opened`. `row_format` is by default that of the
    suffix; `label_separator` is `data.label_separator`.
    """
    row_format = row_format or format_of(file)
    try:
        if row_format.kind == TAGGED:
            with opened(file, row_format, advance) as rows:
                for line, tokens, tags in sentences(rows, log):
                    row = tagged_row(line, tokens, tags, log)
                    if row is not None:
                        yield line, row
            return
        make = row_maker(columns, label_separator)
        for line, values in read_records(file, columns.wanted, log, advance, row_format):
            row = make(line, values, log)
            if row is not None:
                yield line, row
    except RowError as error:
        log.stop(explained(error, file, row_format.encoding))


def read_records(
    file: Path, wanted: Wanted, log: FindingLog, advance: Callable[[int], None], row_format: RowFormat
) -> Iterator[Record]:
    """The values of the `wanted` columns of each row of a table or of JSON lines; arguments as in `read_rows`.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    with opened(file, row_format, advance) as rows:
        read = _json_records if row_format.kind == JSON else _table_records
        yield from read(rows, wanted, log)


def cells(rows: Rows, log: FindingLog) -> Iterator[Cells]:
    """Fields of each row that is not blank.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    quotes = Quotes(rows.separator, log) if rows.format.quoted else None
    filled = False
    for line, fields in rows.cells():
        if isinstance(fields, RowError):
            if fields.kind == BROKEN_CSV:
                log.end(BROKEN_CSV, line, f"broken CSV from here on: {fields.why}", fields.fix)
                return
            raise fields
        if quotes is not None:
            if rows.last > line:  # a row may span lines; findings name its first line
                if quotes.hold(line, rows.last, fields):
                    return
            elif line < REMEMBERED_FIRST or not line % REMEMBERED_EVERY:
                quotes.remember(fields)
        if any(map(str.strip, fields)):
            filled = True
            yield line, fields
        elif len(fields) > 1:
            filled = True
            log.add("empty rows", "warning", line, "this row holds separators and nothing else", "remove it")
        else:
            rows.blank += 1
    refuse_empty(filled)


def _table_records(rows: Rows, wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    """The wanted values of each row, after the columns were found."""
    table = cells(rows, log)
    first = next(table, None)
    if first is None:
        if not log.ended:
            log.end("empty", None, "the file holds no row", "give a file with rows")
        return
    refuse_separator_line(*first, rows.name)
    positions = positions_by_number(wanted)
    if positions is not None:
        if not check_numbers(first, wanted, positions, log):
            return
        head, table = "the first row", chain([first], table)
    else:
        positions, head = find_columns(first, table, wanted, log, rows), "the header"
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


def _json_records(rows: Rows, wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    shown = ", ".join(f'"{name}": {_EXAMPLES.get(key, _TEXT)}' for key, name in wanted.items())
    fix = f"write one object per line: {{{shown}}}"
    for number, record in rows.records():
        if isinstance(record, RowError):
            if record.fatal:
                raise record
            why = f": {record.why}" if record.why else ""
            log.add(record.kind, "error", number, f"this line {record.what}{why}", fix)
            continue
        values = _values(number, record, wanted, log)
        # Only an escape can be a lone surrogate; to search every text would take longer than to read it.
        if values and "\\u" in rows.content and has_half(*values):
            reason = "an escape such as \\ud83d alone is half a character"
            log.add("half characters", "error", number, reason, "write the character itself, or remove the row")
        elif values:
            yield number, values
    refuse_empty(rows.blank < rows.lines.number)


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
