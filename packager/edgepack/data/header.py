"""Positions of the named columns in a table; findings about tables without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

from edgepack.data.choose_columns import choose_columns
from edgepack.data.column_counts import counted_cells
from edgepack.data.detect import (
    ANSWER_NAMES,
    LABEL_NAMES,
    PAIR_NAMES,
    TEXT_NAMES,
    VALUE_NAMES,
    likely_columns,
    looks_like_a_row,
)
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.validate_data import is_number
from edgepack.recipe.yaml import scalar
from edgepack.util.text_digests import visible
from edgepack_runtime.rows.formats import SAMPLE_ROWS, SEPARATORS, likely_separator, rename
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Cells, parse_object
from edgepack_runtime.rows.table import Table

Wanted = Mapping[str, str]  # key of `data.columns` -> name of the column, texts first
Positions = tuple[int, ...]  # of the wanted columns in a row, from 0

_COUNTED_ROWS: Final = 20_000  # from which columns are recognised, in place of the wanted ones

_USUAL_NAMES: Final = {
    "text": TEXT_NAMES,
    "text_pair": PAIR_NAMES,
    "label": LABEL_NAMES,
    "labels": LABEL_NAMES,
    "answers": ANSWER_NAMES,
    "value": (*VALUE_NAMES, *LABEL_NAMES),
}


def positions_by_number(wanted: Wanted) -> Positions | None:
    """Positions of columns that `data.columns` gives by number, for files without a header; None for names."""
    if all(is_number(name) for name in wanted.values()):
        return tuple(int(name) - 1 for name in wanted.values())
    return None


def check_numbers(table: Table, wanted: Wanted, positions: Positions, log: FindingLog) -> Positions | None:
    """`positions` that the first row has; None and a finding if it has not, or is a header."""
    line, fields = table.line, table.first
    outside = [position + 1 for position in positions if not 0 <= position < len(fields)]
    if outside:
        reason = f"there is no column {outside[0]}: the first row has {len(fields)}"
        log.end("column", line, reason, f"set `data.columns`{log.columns_place} to numbers of columns, counted from 1")
        return None
    names = {key: fields[position].strip() for key, position in zip(wanted, positions, strict=True)}
    if all(name.lower() in _USUAL_NAMES.get(key, ()) for key, name in names.items()):
        shown = listed(name.lower() for name in names.values())
        reason = f"the first line seems to be a header ({shown}), and `data.columns` gives numbers"
        log.end("column", line, reason, f"set `data.columns`{log.columns_place} to {_written(names)}")
        return None
    return positions


def find_columns(table: Table, below: Iterator[Cells], wanted: Wanted, log: FindingLog) -> Positions | None:
    """Positions of the named columns; None and a finding with the probable form of the file if one is missing.

    `below` are the rows after the header, of which some are read if a column is missing.
    """
    found = [table.places(name) for name in wanted.values()]
    if all(len(places) == 1 for places in found):
        return tuple(place for [place] in found)
    sample = [fields_of(row) for _, row in islice(below, SAMPLE_ROWS)]
    problems = _instead(table, sample, wanted)
    if not problems:
        rows = chain(sample, (fields_of(row) for _, row in islice(below, _COUNTED_ROWS)))
        problems = list(_missing(table, wanted, log.columns_place, _recognised(log.file, table, rows, wanted)))
    for reason, fix in problems:
        log.end("column", table.line, reason, fix)
    return None


def fields_of(row: Sequence[str] | RowError) -> Sequence[str]:
    """The fields of a row, also of one with an error."""
    return row.fields if isinstance(row, RowError) else row


def _instead(table: Table, sample: Sequence[Sequence[str]], wanted: Wanted) -> list[tuple[str, str]]:
    rows, first = table.file, table.first
    suffix, own = Path(rows.name).suffix.lower(), rows.separator
    # Fields of a wrong separator are joined again to the original line, except for quotes.
    lines = [own.join(fields) for fields in (first, *sample)]
    if isinstance(parse_object(1, lines[0]), dict):
        return [(f"this {suffix} file holds JSON objects, one per line", rename(rows.name, ".jsonl"))]
    found = None if rows.format.quoted else likely_separator(lines)
    if found is not None and found != own:
        by, other = message(SEPARATORS[found]), message(SEPARATORS[own])
        reason: str = message("draft.separated_by", suffix=suffix, by=by, other=other)
        return [(reason, rename(rows.name, ".csv"))]
    if len(wanted) > 1 and all(len(fields) == 1 for fields in (first, *sample)):
        reason = message("draft.one_field", by=message(SEPARATORS[own]))
        what = " and ".join(f"a {key}" for key in wanted) if len(wanted) < 3 else "its texts and a label"
        return [(reason, f"give each row {what}, and the file a first line that names the columns")]
    if not looks_like_a_row(first, sample):
        return []
    reason = message("found.no_header", first=_shown(first))
    guess = likely_columns([first, *sample], len(wanted) - 1) if len(first) > 1 else ()
    numbers = {key: f'"{position + 1}"' for key, position in zip(wanted, guess, strict=False)}
    fix = message("found.count_columns", columns=_written(numbers)) if numbers else message("found.name_columns")
    return [(reason, fix)]


def _recognised(file: Path, table: Table, rows: Iterable[Sequence[str]], wanted: Wanted) -> str:
    """`data.columns` with what `edgepack init` finds for the columns that are missing; empty if it finds none."""
    names = [name.strip() for name in table.first]
    try:
        found = choose_columns(counted_cells(file, table.file.format, names, rows)).wanted
    except RecipeInvalidError:
        return ""
    both = {key: name if len(table.places(name)) == 1 else found.get(key, "") for key, name in wanted.items()}
    is_whole = found.keys() == wanted.keys() and len(set(both.values())) == len(both)
    return _written({key: scalar(name) for key, name in both.items()}) if is_whole else ""


def _missing(table: Table, columns: Wanted, place: str, recognised: str) -> Iterator[tuple[str, str]]:
    """Reason and fix of each column that is missing. `recognised` columns are ready to paste."""
    shown, names = _shown(table.first), {name.strip() for name in table.first}
    for key, wanted in columns.items():
        places = table.places(wanted)
        if len(places) == 1:
            continue
        if places:
            yield f"duplicate column `{wanted}` in the header: {shown}", "rename one of the two"
            continue
        near = did_you_mean(wanted, names - {""}, "")
        fix = message("mistake.write_columns", place=place, columns=recognised)
        if near or not recognised:
            near = near or message("mistake.header_first")
            fix = message("mistake.set_column", near=near, key=key, place=place)
        yield message("mistake.no_column", column=wanted, header=shown), fix


def _shown(names: Sequence[str]) -> str:
    return listed(visible(name.strip()[:40]) for name in names[:20])


def _written(columns: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {name}" for key, name in columns.items()) + "}"
