"""Profile of a data file: encoding, separator, header, and counts of the cells of each column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Final

from edgepack.data.brat import is_brat
from edgepack.data.column_counts import MAX_VALUES, Column, FileProfile, counted_cells
from edgepack.data.detect import looks_like_a_row, looks_tagged
from edgepack.data.files import explained, filled_lines, format_of, no_progress, opened, refuse_empty
from edgepack.data.header import fields_of
from edgepack.data.record_forms import Annotated, by_jq, nested_table, records, refuse_others, target_for, typed
from edgepack.data.tables import cells
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.messages import listed
from edgepack.recipe.paths import is_workbook, on_disk
from edgepack_runtime.rows.encodings import CONVERTED, recognise
from edgepack_runtime.rows.formats import (
    JSON,
    LINES,
    SAMPLE_ROWS,
    TABLE,
    TAGGED,
    RowFormat,
    is_csv,
    likely_separator,
    rename,
)
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Rows, parse_object
from edgepack_runtime.rows.table import Table

_FASTTEXT: Final = "__label__"
_FROM_FASTTEXT: Final = (  # the words without the prefix, a tab, and the labels with | between
    '{t=l=""; for(i=1;i<=NF;i++) if(index($i,"__label__")==1) l=l (l==""?"":"|") substr($i,10); '
    'else t=t (t==""?"":" ") $i; print t "\\t" l}'
)
_LISTS: Final = re.compile(r"\[\s*\[")
_SPACY: Final = re.compile(r'"entities"\s*:')
_OF_LISTS: Final = ".[] | {text: .[0], label: .[1]}"
_OF_SPACY: Final = ".[] | {text: .[0], spans: [.[1].entities[] | {start: .[0], end: .[1], label: .[2]}]}"
_BARS: Final = "_!_"  # between the fields of Toutiao's headlines
_SLASHED: Final = re.compile(r"(?:\S+/[A-Za-z][\w-]*\s+)*\S+/[A-Za-z][\w-]*")  # words, each with its tag
# A word with its tag on each line: tags of BIO stay, others begin a span, and `o` is none.
_FROM_SLASHES: Final = (
    '{for(i=1;i<=NF;i++){n=split($i,p,"/"); t=p[n]; print substr($i,1,length($i)-length(t)-1) "\\t" '
    '(t~/^[oO]$/ ? "O" : t~/^[BIESM]-/ ? t : "B-" t)} print ""}'
)
_BARE_TAG: Final = re.compile(r"[A-Za-z]{1,8}")
_SHORT_TOKEN: Final = 3  # characters on average
_ALIKE: Final = 0.9  # of the lines of a sample have one form
_SAMPLE_BYTES: Final = 2**20


def profile(file: Path, advance: Callable[[int], None] = no_progress) -> FileProfile:
    """Read all of `file`, in any encoding and with any separator. `advance` gets the number of bytes read.

    Raises:
        RecipeInvalidError: it holds no table (has the finding), or is a pipe or a device.
    """
    there = on_disk(file)
    if there.exists() and not there.is_file() and not there.is_dir():  # to open a pipe would wait for its writer
        raise RecipeInvalidError(message("draft.irregular", file=str(file)), fix=message("draft.to_a_file"))
    encoding = "utf-8" if is_workbook(file) else likely_encoding(file)
    try:
        form = _form(file, encoding)
        with opened(file, form, advance) as rows:
            if form.kind == TAGGED:
                blank = sum(1 for _, line in filled_lines(rows) if not line.strip())
                return FileProfile(file, form, False, blank, ())
            read = _of_records if form.kind == JSON else _of_cells
            return read(file, form, rows)
    except RowError as error:
        found = explained(error, file, encoding)
        raise RecipeInvalidError(message("mistake.unusable", file=str(file), n=1), findings=[found]) from error


def likely_encoding(file: Path) -> str:
    """The encoding of a file, by its beginning; UTF-8 if it is not certainly an encoding of Chinese.

    The reader then reports the possible encodings, and nothing is converted wrongly.
    """
    try:
        with file.open("rb") as stream:
            found = recognise(stream.read(_SAMPLE_BYTES))
    except (OSError, ValueError):
        return "utf-8"
    return found.certain.codec if found is not None and found.certain in CONVERTED else "utf-8"


def _sample(file: Path, encoding: str) -> tuple[str, ...]:
    """The first lines of a file.

    Raises:
        RowError: one cannot be read, or all are blank.
    """
    sample = []
    with opened(file, RowFormat(LINES, encoding=encoding)) as rows:
        for line in islice(rows.lines, SAMPLE_ROWS):
            if rows.lines.failed:
                raise rows.lines.error()
            sample.append(line)
    refuse_empty(len(sample) == SAMPLE_ROWS or any(map(str.strip, sample)))
    return tuple(sample)


def _form(file: Path, encoding: str) -> RowFormat:
    if is_workbook(file):
        return format_of(file)
    if is_brat(file):
        return RowFormat(JSON)
    with opened(file, RowFormat(JSON, encoding=encoding)) as rows:
        if rows.is_list:
            return rows.format
    sample = _sample(file, encoding)
    first = next((line for line in sample if line.strip()), "")
    if first.startswith("["):
        text = "".join(sample)
        refuse_others(1, re.findall(r'"(\w+)"\s*:', text), file)  # lists of lists, as C3 has them
        if _LISTS.match(text):
            program = _OF_SPACY if _SPACY.search(text) else _OF_LISTS
            command = by_jq(program, file, target_for(file, "rows", ".jsonl"))
            raise RowError(1, "is a list of lists, without names", message("encoding.convert", command=command))
    if first.startswith("[") or isinstance(parse_object(1, first), dict):
        return RowFormat(JSON, encoding=encoding)
    is_csv_of_commas = file.suffix.lower() == ".csv" and "," in first
    if not is_csv_of_commas and looks_tagged(sample):
        return RowFormat(TAGGED, encoding=encoding)
    found = likely_separator(sample)
    if first.startswith(_FASTTEXT):
        command = f"awk {quote(_FROM_FASTTEXT)} {typed(file.name)} > {typed(target_for(file, 'rows', '.tsv'))}"
        raise RowError(1, message("draft.fasttext"), message("encoding.convert", command=command))
    if first.startswith("{"):
        command = by_jq(".", file, target_for(file, "lines", ".jsonl"))
        raise RowError(1, message("draft.object_of_lines"), message("rows.one_per_line", command=command))
    if (named := _named_form(sample, file)) is not None:
        raise named
    is_named_csv = file.suffix.lower() == ".csv"
    if found is None and is_csv(sample, "\t"):
        if not is_named_csv:
            raise RowError(1, message("draft.quoted_line_ends"), rename(file.name, ".csv"))
        found = "\t"
    if found is None:
        raise RowError(1, message("mistake.no_row"), message("mistake.separate"))
    if is_named_csv:
        return RowFormat(TABLE, quoted=True, encoding=encoding)  # the reader chooses, as for a recipe
    return RowFormat(TABLE, found, quoted=found in ",;", encoding=encoding)


def _named_form(sample: Sequence[str], file: Path) -> RowError | None:
    """The error about lines in another form, with the command that converts them; None if they have none of these."""
    filled = [line.strip() for line in sample if line.strip()]
    target = target_for(file, "tokens", ".conll")
    if len({line.count(_BARS) for line in filled}) == 1 and _BARS in filled[0]:
        command = (
            f"awk -F{_BARS} -v OFS='\\t' '{{$1=$1}} 1' {typed(file.name)} > {typed(target_for(file, 'rows', '.tsv'))}"
        )
        return RowError(1, f"has {_BARS} between its fields", message("encoding.convert", command=command))
    if sum(_SLASHED.fullmatch(line) is not None for line in filled) >= _ALIKE * len(filled):
        command = f"awk {quote(_FROM_SLASHES)} {typed(file.name)} > {typed(target)}"
        return RowError(1, "has words with their tags, as in 北京/ns", message("encoding.convert", command=command))
    pairs = [line.split() for line in filled]
    if len(sample) > len(filled) and all(len(pair) == 2 for pair in pairs):  # sentences, with blank lines between them
        tags, characters = {tag for _, tag in pairs}, sum(len(token) for token, _ in pairs)
        if all(map(_BARE_TAG.fullmatch, tags)) and characters <= _SHORT_TOKEN * len(pairs):
            places = tags <= {"B", "M", "E", "S", "I", "O"}
            tag = '$2=="O" ? "O" : $2 "-word"' if places else '"B-" $2'
            code = '{print NF ? $1 "\\t" (' + tag + ') : ""}'
            command = f"awk {quote(code)} {typed(file.name)} > {typed(target)}"
            what = "has a token and a tag without a type on each line"
            return RowError(1, what, message("encoding.convert", command=command))
    return None


def _of_records(file: Path, form: RowFormat, lines: Rows) -> FileProfile:
    columns: dict[str, Column] = {}
    rows, record = 0, None
    for _, record in records(lines, file):
        if isinstance(record, RowError):
            continue  # reported when the rows are read
        rows += bool(record)
        results = record.results if isinstance(record, Annotated) else ()
        for name, value in record.items():
            if name not in columns and len(columns) < MAX_VALUES:
                columns[name] = Column(name)
            if name in columns:
                columns[name].add(value)
                columns[name].is_result |= name in results
    if rows == 1 and isinstance(record, Mapping) and (found := nested_table(record)) is not None:
        what, programs = found
        command = " && ".join(by_jq(code, file, target_for(file, name, ".jsonl")) for name, code in programs.items())
        raise RowError(1, f"is one JSON object that holds {what}", message("encoding.convert", command=command))
    return FileProfile(file, form, True, rows, tuple(columns.values()))


def _of_cells(file: Path, form: RowFormat, lines: Rows) -> FileProfile:
    log = FindingLog(file)  # errors in single rows are reported when the rows are read
    below = (fields_of(row) for _, row in cells(Table(lines), log))
    first = next(below, [])
    next_rows = list(islice(below, SAMPLE_ROWS))
    header = not looks_like_a_row(first, next_rows)
    if header:
        refuse_others(1, first, file)
    names = [name.strip() for name in first] if header else [str(number) for number in range(1, len(first) + 1)]
    found = counted_cells(file, form, names, chain([] if header else [first], next_rows, below), header=header)
    if not found.rows and not log.ended:
        reason = message("draft.no_rows", header=listed(name[:40] for name in names[:10]))
        log.end("empty", None, reason, message("rows.give_rows"))
    if not found.rows:
        raise RecipeInvalidError(message("mistake.unusable", file=str(file), n=1), findings=log.findings())
    return replace(found, form=form._replace(separator=lines.separator))
