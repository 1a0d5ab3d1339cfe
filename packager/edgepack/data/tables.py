"""Reader of the rows of one data file, with findings.

Tables, JSON lines and CoNLL are read as `edgepack_runtime.rows` reads them. TSV and CSV start with a header, unless
`data.columns` has numbers. Blank lines are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path

from edgepack.artifacts import Row
from edgepack.data.files import explained, format_of, no_progress, opened, refuse_empty
from edgepack.data.header import Wanted, check_numbers, fields_of, find_columns, positions_by_number
from edgepack.data.quotes import REMEMBERED_EVERY, REMEMBERED_FIRST, Quotes
from edgepack.data.record_forms import left_out, records, refusal_of_annotator
from edgepack.data.tagged_tokens import sentences
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.labelled_spans import tagged_row
from edgepack.tasks.registry import row_maker
from edgepack.tasks.task import Values
from edgepack_runtime.rows.formats import BY_SUFFIX, JSON, TAGGED, RowFormat
from edgepack_runtime.rows.label_cells import has_half
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import BROKEN_CSV, Cells, Rows
from edgepack_runtime.rows.table import NO_CONTENT, Table
from edgepack_runtime.tasks.registry import TASKS, TOKENS

Record = tuple[int, Values]  # line from 1, the values of the wanted columns

_EXAMPLES = {key: shown for task in TASKS for key, shown in {**task.columns, **task.other_columns}.items()}
_TEXT = '"..."'


def read_rows(
    file: Path,
    columns: Columns,
    log: FindingLog,
    advance: Callable[[int], None] = no_progress,
    row_format: RowFormat | None = None,
    label_separator: LabelSeparator = "|",
) -> Iterator[tuple[int, Row]]:
    """Rows of one split with the line (from 1) on which each starts; one row is in memory at a time.

    Errors of the content are logged as findings, never raised. Rows with an error are dropped, so the rows are complete
    only if no finding is an error. `advance` counts bytes, as in `opened`. `row_format` is by default that of the
    suffix; `label_separator` is `data.label_separator`.
    """
    row_format = row_format or format_of(file)
    if row_format.kind == TAGGED and columns.task != TOKENS:  # a .txt may look so
        row_format = BY_SUFFIX[".tsv"]
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


def cells(table: Table, log: FindingLog) -> Iterator[Cells]:
    """The first row, and those below it; what ends the table, and rows without content, are logged as findings.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    rows = table.file
    quotes = Quotes(rows.separator, log) if rows.format.quoted else None
    for line, found in chain([(table.line, table.first)], table.below()):
        if isinstance(found, RowError):
            if found.kind == BROKEN_CSV:
                log.stop(explained(found, log.file))
                return
            if found.fatal:
                raise found
            if found.kind == NO_CONTENT:
                log.add(found.kind, "warning", line, message("draft.this_row", what=found.what), found.fix)
                continue
        if quotes is not None:
            fields = fields_of(found)
            if rows.last > line:  # a row may span lines; findings name its first line
                if quotes.hold(line, rows.last, fields):
                    return
            elif line < REMEMBERED_FIRST or not line % REMEMBERED_EVERY:
                quotes.remember(fields)
        yield line, found


def _table_records(rows: Rows, wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    """The wanted values of each row, after the columns were found."""
    numbers = positions_by_number(wanted)
    table = Table(rows, message("rows.header" if numbers is None else "draft.first_row"))
    found = cells(table, log)
    first = next(found, None)
    if first is None:
        return
    if numbers is None:
        positions = find_columns(table, found, wanted, log)
    else:
        positions, found = check_numbers(table, wanted, numbers, log), chain([first], found)
    if positions is None:
        return
    # For a single position `itemgetter` returns no tuple.
    values = itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))
    for number, fields in found:
        if isinstance(fields, RowError):
            log.add(fields.kind, "error", number, message("draft.this_row", what=fields.what), fields.fix)
        else:
            yield number, values(fields)


def _json_records(rows: Rows, wanted: Wanted, log: FindingLog) -> Iterator[Record]:
    shown = ", ".join(f'"{name}": {_EXAMPLES.get(key, _TEXT)}' for key, name in wanted.items())
    fix = message("rows.one_per_line", command=f"{{{shown}}}")
    for number, record in records(rows, log.file):
        if isinstance(record, RowError):
            this: str = message("mistake.this_line", what=record.what)
            reason = message("mistake.with_why", what=this, why=record.why) if record.why else this
            log.add(record.kind, "error", number, reason, record.fix or fix)
            continue
        if (answer := refusal_of_annotator(record)) is not None:
            reason = f'the annotator answered "{answer}": the row is left out'
            log.add("rows that annotators refused", "warning", number, reason, "export the accepted rows alone")
            continue
        for kind, reason, instead in left_out(record, wanted):
            log.add(kind, "warning", number, reason, instead)
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
    near = partial(did_you_mean, missing[0], record, otherwise)
    log.add("lines that lack a key", "error", number, reason, near)
    return None
