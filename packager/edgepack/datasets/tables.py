"""One split file (.tsv, .csv, .jsonl) -> rows with their line numbers, and everything that is wrong.

TSV is split on tabs and nothing else: quotes are characters like others, as in the files that Chinese corpora
come in. CSV is what the csv module reads. JSONL is one object a line. All are UTF-8, with or without a byte
order mark; TSV and CSV start with a header. Blank lines are skipped. Labels lose the white space around them,
texts do not.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgepack.artifacts import Row
from edgepack.recipe.explain import did_you_mean, listed
from edgepack.recipe.findings import Finding, Severity
from edgepack.recipe.model import Columns
from edgepack.recipe.parse import decode, has_surrogate

# Findings of one kind in one file that are listed; the rest is counted. Warnings are hints, errors are work.
MAX_LISTED: Final[Mapping[Severity, int]] = {"error": 20, "warning": 5}

_Record = tuple[int, dict[str, object]]  # line from 1, column or key -> value


@dataclass(frozen=True)
class Table:
    """What one file holds: `lines[i]` is the line (from 1) on which `rows[i]` starts."""

    file: Path
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    findings: tuple[Finding, ...]


@dataclass
class FindingLog:
    """Findings of one file, MAX_LISTED at most of each kind and then how many more there are."""

    file: Path
    _kept: dict[str, list[Finding]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, severity: Severity, line: int | None, reason: str, fix: str) -> None:
        """Note one finding; `kind` says in few words what the findings beyond the limit are."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        kept = self._kept.setdefault(kind, [])
        if len(kept) < MAX_LISTED[severity]:
            kept.append(Finding(severity, self.file, line, reason, fix))

    def findings(self) -> tuple[Finding, ...]:
        """All that was noted, kind by kind, in the order in which the kinds came up."""
        result: list[Finding] = []
        for kind, kept in self._kept.items():
            result += kept
            more = self._counts[kind] - len(kept)
            if more:
                reason = f"{more} more: {kind} ({self._counts[kind]} in all)"
                result.append(Finding(kept[0].severity, self.file, None, reason, kept[0].fix))
        return tuple(result)


def read_table(file: Path, columns: Columns) -> Table:
    """Read one split. Never raises for what a file holds: whatever is wrong is in `findings`.

    Rows that have an error are left out of `rows`, so `rows` is complete only when no finding is an error.
    """
    log = FindingLog(file)
    rows: list[Row] = []
    lines: list[int] = []
    for line, record in _records(file, columns, log):
        row = _row(line, record, columns, log)
        if row is not None:
            rows.append(row)
            lines.append(line)
    return Table(file, tuple(rows), tuple(lines), log.findings())


def _records(file: Path, columns: Columns, log: FindingLog) -> Iterator[_Record]:
    try:
        raw = file.read_bytes()
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
        log.add("unreadable", "error", None, reason, "check the path and its permissions")
        return
    text, undecodable = decode(raw, file)
    if undecodable is not None:
        log.add("undecodable", "error", undecodable.line, undecodable.reason, undecodable.fix)
        return
    if not text.strip():
        log.add("empty", "error", None, "the file is empty", "give a file with rows")
        return
    if file.suffix.lower() == ".jsonl":
        yield from _json_records(text, columns, log)
    else:
        table = _csv_fields(text, log) if file.suffix.lower() == ".csv" else _tsv_fields(text)
        yield from _named(table, columns, log)


def _tsv_fields(text: str) -> Iterator[tuple[int, list[str]]]:
    # Not splitlines(): U+2028, U+0085 and other characters that it takes for line ends do occur inside texts.
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.removesuffix("\r")
        if content.strip():
            yield number, content.split("\t")


def _csv_fields(text: str, log: FindingLog) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1  # a row may span lines: it is named by its first
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fix = 'a text that holds a comma, a quote or a line end is put in quotes, and a quote in it is `""`'
            log.add("broken CSV", "error", line, f"broken CSV from here on: {error}", fix)
            return
        if any(content.strip() for content in fields):
            yield line, fields


def _named(table: Iterator[tuple[int, list[str]]], columns: Columns, log: FindingLog) -> Iterator[_Record]:
    """Rows as mappings from the header's names, once the header holds the columns that are asked for."""
    line, header = next(table, (1, []))
    names = [name.strip() for name in header]
    complete = True
    for key, wanted in (("text", columns.text), ("label", columns.label)):
        if names.count(wanted) == 1:
            continue
        complete = False
        shown = listed(name[:40] for name in names[:20])
        if wanted in names:
            reason, fix = f"the column `{wanted}` stands twice in the header: {shown}", "rename one of the two"
        else:
            reason = f"the column `{wanted}` is not in the header, which is {shown}"
            near = did_you_mean(wanted, set(names) - {""}, "the first line must be a header; if it is one,")
            fix = f"{near} set `data.columns.{key}` to the name of the column"
        log.add("column", "error", line, reason, fix)
    if not complete:
        return
    for number, fields in table:
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
            continue
        reason = f"this row has {_count(len(fields), 'field')}, and the header has {len(names)}"
        fix = "a text must hold no separator: replace it, or put the text in quotes in a .csv file"
        log.add("rows with a wrong number of fields", "error", number, reason, fix)


def _json_records(text: str, columns: Columns, log: FindingLog) -> Iterator[_Record]:
    fix = f'write one object a line: {{"{columns.text}": "...", "{columns.label}": "..."}}'
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else "a value is out of all bounds"
            log.add("lines that are not JSON", "error", number, f"this line is not JSON: {why}", fix)
            continue
        if not isinstance(record, dict):
            log.add("lines that are no JSON object", "error", number, "this line is no JSON object", fix)
            continue
        missing = [key for key in (columns.text, columns.label) if key not in record]
        if not missing:
            yield number, record
            continue
        shown = listed(name[:40] for name in list(record)[:20]) or "nothing"
        reason = f"this line lacks {listed(missing)}; it has {shown}"
        near = did_you_mean(missing[0], set(record), "set `data.columns` to the keys that hold text and label")
        log.add("lines that lack a key", "error", number, reason, near)


def _row(line: int, record: dict[str, object], columns: Columns, log: FindingLog) -> Row | None:
    text, label = record[columns.text], _label(record[columns.label])
    if not isinstance(text, str):
        reason, fix = "the text is no JSON string", "write the text in quotes"
        log.add("texts that are no strings", "error", line, reason, fix)
        return None
    if label is None:
        reason, fix = "the label is neither a string nor a whole number", 'write it as a string: "positive"'
        log.add("labels of another kind", "error", line, reason, fix)
        return None
    if not label or not text.strip():
        what = "text" if label else "label"
        log.add(
            f"rows without a {what}",
            "error",
            line,
            f"the {what} is empty",
            f"give it a {what}, or remove the row",
        )
        return None
    if has_surrogate(text) or has_surrogate(label):
        reason = "an escape such as \\ud83d stands alone: half a character"
        log.add("half characters", "error", line, reason, "write the character itself, or remove the row")
        return None
    if "\ufffd" in text:
        reason = "the text holds U+FFFD: characters were lost when it was decoded once before"
        log.add("texts with U+FFFD", "warning", line, reason, "take the row from its source again, or remove it")
    return Row(text, label)


def _label(value: object) -> str | None:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
