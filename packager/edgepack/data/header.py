"""Positions of the named columns in a table; findings about tables without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Final

from edgepack.data.detect import (
    LABEL_NAMES,
    PAIR_NAMES,
    SAMPLE_ROWS,
    SEPARATORS,
    TEXT_NAMES,
    is_json_object,
    likely_columns,
    likely_separator,
    looks_like_a_row,
)
from edgepack.data.finding_log import FindingLog
from edgepack.data.lines import form_by_suffix
from edgepack.data.text_digests import visible
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.validate_data import is_number

Cells = tuple[int, list[str]]  # the line from 1 on which the row starts, and its fields
Wanted = Mapping[str, str]  # key of `data.columns` -> name of the column, texts first
Positions = tuple[int, ...]  # of the wanted columns in a row, from 0

_SUFFIX_OF: Final = {",": ".csv", "\t": ".tsv"}
_USUAL_NAMES: Final = {"text": TEXT_NAMES, "text_pair": PAIR_NAMES, "label": LABEL_NAMES, "labels": LABEL_NAMES}


def positions_by_number(wanted: Wanted) -> Positions | None:
    """Positions of columns that `data.columns` gives by number, for files without a header; None for names."""
    if all(is_number(name) for name in wanted.values()):
        return tuple(int(name) - 1 for name in wanted.values())
    return None


def check_numbers(first: Cells, wanted: Wanted, positions: Positions, log: FindingLog) -> bool:
    """Whether the first row has the columns with these numbers, and is not a header."""
    line, fields = first
    outside = [position + 1 for position in positions if not 0 <= position < len(fields)]
    if outside:
        reason = f"there is no column {outside[0]}: the first row has {len(fields)}"
        log.end("column", line, reason, f"set `data.columns`{log.columns_place} to numbers of columns, counted from 1")
        return False
    names = {key: fields[position].strip() for key, position in zip(wanted, positions, strict=True)}
    if all(name.lower() in _USUAL_NAMES.get(key, ()) for key, name in names.items()):
        shown = listed(name.lower() for name in names.values())
        reason = f"the first line seems to be a header ({shown}), and `data.columns` gives numbers"
        log.end("column", line, reason, f"set `data.columns`{log.columns_place} to {_written(names)}")
        return False
    return True


def find_columns(header: Cells, below: Iterator[Cells], wanted: Wanted, log: FindingLog) -> Positions | None:
    """Positions of the named columns; None and a finding with the probable form of the file if one is missing.

    `below` are the rows after the header, of which some are read if a column is missing.
    """
    line, fields = header
    names = [name.strip() for name in fields]
    if all(names.count(name) == 1 for name in wanted.values()):
        return tuple(names.index(name) for name in wanted.values())
    sample = [row for _, row in islice(below, SAMPLE_ROWS)]
    for reason, fix in _instead(fields, sample, wanted, log.file) or _missing(names, wanted, log.columns_place):
        log.end("column", line, reason, fix)
    return None


def _instead(first: list[str], sample: Sequence[list[str]], wanted: Wanted, file: Path) -> list[tuple[str, str]]:
    suffix = file.suffix.lower()
    own = form_by_suffix(file).separator or "\t"
    # Fields of a wrong separator are joined again to the original line, except for quotes.
    lines = [own.join(fields) for fields in (first, *sample)]
    if is_json_object(lines[0]):
        reason = f"this {suffix} file holds JSON objects, one per line"
        return [(reason, _rename(file, ".jsonl"))]
    found = likely_separator(lines)
    if found is not None and found != own:
        reason = f"this {suffix} file is separated by {SEPARATORS[found]}, and not by {SEPARATORS[own]}"
        return [(reason, _with_separator(file, found))]
    if len(wanted) > 1 and all(len(fields) == 1 for fields in (first, *sample)):
        reason = f"every row has one field: nothing is separated by {SEPARATORS[own]}"
        what = " and ".join(f"a {key}" for key in wanted) if len(wanted) < 3 else "its texts and a label"
        return [(reason, f"give each row {what}, and the file a first line that names the columns")]
    if not looks_like_a_row(first, sample):
        return []
    reason = f"the file seems to have no header: its first line is {_shown(first)}"
    guess = likely_columns([first, *sample], len(wanted) - 1) if len(first) > 1 else ()
    numbers = {key: f'"{position + 1}"' for key, position in zip(wanted, guess, strict=False)}
    counted = f", or count them in the recipe, as in `columns: {_written(numbers)}`" if numbers else ""
    return [(reason, f"name the columns in a first line{counted}")]


def names_separator(first: Sequence[str], file: Path) -> tuple[str, str] | None:
    """Reason and fix of a first row that only tells Excel the separator (`sep=;`); None for other rows."""
    said = "".join(first).strip().lower()
    if not said.startswith("sep=") or len(said) > len("sep=;"):
        return None
    reason = "its first line (`sep=`) only tells Excel what stands between the fields"
    return reason, f"remove that line: tail -n +2 {quote(file.name)} > {quote(f'without-{file.name}')}"


def not_json_lines(first: str, file: Path) -> tuple[str, str] | None:
    """Reason and fix of a .jsonl file whose `first` line is not JSON lines; None if it may be."""
    if first.startswith("["):
        fix = f"write one object per line: jq -c '.[]' {quote(file.name)} > {quote(f'lines-{file.name}')}"
        return "this is one JSON list, and not one object per line", fix
    found = None if first.startswith("{") else likely_separator([first])
    if found is None:
        return None
    return f"this .jsonl file holds no JSON: it is separated by {SEPARATORS[found]}", _with_separator(file, found)


def _with_separator(file: Path, found: str) -> str:
    if found in _SUFFIX_OF:
        return _rename(file, _SUFFIX_OF[found])
    code = f"import csv,sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{found}'))"
    return f'write it with commas: python3 -c "{code}" < {quote(file.name)} > {quote(f"{file.stem}-commas.csv")}'


def _rename(file: Path, suffix: str) -> str:
    new = file.with_suffix(suffix).name
    return f"name it by what it is, here and in the recipe: mv {quote(file.name)} {quote(new)}"


def _missing(names: list[str], columns: Wanted, place: str) -> Iterator[tuple[str, str]]:
    shown = _shown(names)
    for key, wanted in columns.items():
        if names.count(wanted) == 1:
            continue
        if wanted in names:
            yield f"the column `{wanted}` stands twice in the header: {shown}", "rename one of the two"
            continue
        near = did_you_mean(wanted, set(names) - {""}, "the first line must be a header; if it is one,")
        fix = f"{near} set `data.columns.{key}`{place} to the name of the column"
        yield f"the column `{wanted}` is not in the header, which is {shown}", fix


def _shown(names: Sequence[str]) -> str:
    return listed(visible(name.strip()[:40]) for name in names[:20])


def _written(columns: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {name}" for key, name in columns.items()) + "}"
