"""Data file for a draft: its form, its columns, and statistics of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Final

from edgepack.artifacts import Row
from edgepack.data.choose_columns import choose_columns, labels_not_taken
from edgepack.data.draft.profile import profile
from edgepack.data.files import format_of
from edgepack.data.split_stats import SplitFacts, read_facts
from edgepack.data.splits import counted_bytes
from edgepack.data.tables import read_rows
from edgepack.data.workbooks import other_sheets
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.progress import Progress
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import listed
from edgepack.recipe.model import Columns, LabelSeparator, SplitName
from edgepack.recipe.paths import is_workbook, on_disk, sheet_of
from edgepack.recipe.validate_data import TABLE_SUFFIXES, TAGGED_SUFFIXES
from edgepack.util.text_digests import visible
from edgepack_runtime.rows.encodings import CONVERTED
from edgepack_runtime.rows.formats import JSON, SEPARATORS, TAGGED, RowFormat
from edgepack_runtime.rows.lines import RowError

_ENCODINGS: Final = {"utf-8": "UTF-8"} | {encoding.codec: encoding.name for encoding in CONVERTED}
_MOST_UNREAD: Final = 8  # that are named
_MOST_SHEETS: Final = 8  # that are looked at for a table


@dataclass(frozen=True)
class DraftSource:
    """A data file. `columns` are names, or numbers without a header; `facts` are statistics of usable rows.

    `label_separator` separates labels in a cell, if there may be several; `findings` are about the choice of columns.
    """

    file: Path
    form: RowFormat
    header: bool
    columns: Columns
    facts: SplitFacts
    label_separator: LabelSeparator = "|"
    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()  # names of columns that are neither texts nor answers

    @property
    def plain(self) -> bool:
        """Whether a recipe can read the file directly."""
        return (
            on_disk(self.file).suffix.lower() in (*TABLE_SUFFIXES, *TAGGED_SUFFIXES)
            and self.form == self._form_of_suffix
            and (self.header or self.form.kind == TAGGED)
            and self.facts.complete
        )

    @property
    def _form_of_suffix(self) -> RowFormat:
        own = format_of(self.file)
        return own._replace(separator=self.form.separator) if own.quoted else own  # a .csv shows its separator

    def rows(self, progress: Progress) -> Iterator[tuple[int, Row]]:
        """Every usable row with its line, read again."""
        with counted_bytes(f"writing the rows of {self.file.name}", [self.file], progress) as advance:
            log = FindingLog(self.file)
            yield from read_rows(self.file, self.columns, log, advance, self.form, self.label_separator)

    def describe(self) -> str:
        """Form, columns and task of the file, in one line."""
        if self.form.kind == TAGGED:
            tagged = message("draft.tagged", encoding=self._encoding)
            return message("draft.about", file=str(self.file), parts=[tagged, self.columns.task])
        form: list[str]
        separator = self.form.separator
        if is_workbook(self.file):
            others = other_sheets(self.file)
            form = [message("draft.first_sheet", others=listed(others)) if others else message("draft.sheet")]
        elif separator is None:
            form = [self._encoding, message("draft.brat") if self.file.is_dir() else JSON]
        else:
            form = [self._encoding, message("draft.separated", by=message(SEPARATORS[separator]))]
        if separator is not None:
            form.append(message("draft.header" if self.header else "draft.headless"))
        flags = self.columns.labels if isinstance(self.columns.labels, tuple) else ()
        named = self.columns.texts if flags else self.columns.wanted
        columns: list[str] = [message(f"draft.{key}", name=name) for key, name in named.items()]
        if flags:
            columns.append(message("draft.flags", names=listed(map(visible, flags))))
        elif self.columns.text_task.multi_label and self.form.separator is not None:
            separators = (self.label_separator,) if isinstance(self.label_separator, str) else self.label_separator
            columns[-1] = message("draft.between", column=columns[-1], separators=listed(map(visible, separators)))
        task = [] if self.columns.wanted.keys() == {"text", "label"} else [self.columns.task]
        parts = [*(message("list.comma", parts=each) for each in (form, columns)), *task]
        if self.unread:
            shown = [*map(visible, self.unread[:_MOST_UNREAD]), *(["..."] if len(self.unread) > _MOST_UNREAD else [])]
            parts.append(message("draft.unread", names=listed(shown)))
        return message("draft.about", file=str(self.file), parts=parts)

    @property
    def _encoding(self) -> str:
        return _ENCODINGS[self.form.encoding]


def _sheet_with_a_table(file: Path) -> Path | None:
    """The first sheet of a workbook that a recipe can be drafted for, where `file` names none."""
    try:
        names = other_sheets(file)
    except (RowError, OSError):
        return None
    for name in names[:_MOST_SHEETS]:
        sheet = file.with_name(f"{file.name}#{name}")
        try:
            choose_columns(profile(sheet))
        except RecipeInvalidError:
            continue
        return sheet
    return None


def look_at(name: SplitName, file: Path, progress: Progress) -> DraftSource:
    """Profile `file` in one pass, and read its rows in a second one.

    Raises:
        RecipeInvalidError: no row can be used.
    """
    with counted_bytes(f"looking at {file.name}", [file], progress) as advance:
        try:
            found = profile(file, advance)
            columns = choose_columns(found)
        except RecipeInvalidError as error:
            if (sheet := _sheet_with_a_table(file)) is None:
                raise
            fix = f"the sheet `{sheet_of(sheet)}` has a table: edgepack init {quote(str(sheet))}"
            findings = [replace(finding, fix=fix) for finding in error.findings]
            raise RecipeInvalidError(error.what, findings=findings) from error
    labels = found.column([columns.labels.lower()]) if isinstance(columns.labels, str) else None
    separator = (labels.label_separator if labels is not None else None) or "|"
    with counted_bytes(f"reading {file.name}", [file], progress) as advance:
        facts = read_facts(name, file, columns, advance, found.form, separator)
    if facts.log.ended or not len(facts):
        raise RecipeInvalidError(message("draft.none", file=str(file)), findings=facts.log.findings())
    alike: list[Finding] = []
    if others := labels_not_taken(found, columns):
        reason = message("draft.alike", others=listed(map(visible, others)), taken=visible(columns.label))
        alike.append(Finding("warning", file, None, reason, message("draft.one_each")))
    read = columns.wanted.values()
    unread = tuple(one.name for one in found.columns if found.header and one.name and one.name not in read)
    return DraftSource(file, found.form, found.header, columns, facts, separator, tuple(alike), unread)
