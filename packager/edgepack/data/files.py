"""Data files as rows of the reader that devices use, and findings about files that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgepack.data.brat import BratRows, is_brat
from edgepack.data.detect import looks_tagged
from edgepack.data.workbooks import opened_sheet
from edgepack.messages import message
from edgepack.recipe.findings import Finding
from edgepack.recipe.paths import is_workbook
from edgepack.recipe.validate_data import TAGGED_SUFFIXES
from edgepack.recipe.yaml import decode
from edgepack_runtime.rows.encodings import SAMPLE_BYTES
from edgepack_runtime.rows.formats import BY_SUFFIX, SAMPLE_ROWS, TAGGED, RowFormat
from edgepack_runtime.rows.lines import NotUtf8Error, RowError, as_utf8, open_stream, refuse_non_text, with_line_feeds
from edgepack_runtime.rows.reader import BROKEN_CSV, Rows


def no_progress(read_bytes: int) -> None:
    """Ignore the number of bytes."""


def format_of(file: Path) -> RowFormat:
    """The format by suffix, as devices have it; .conll and .bio are CoNLL, other files have tabs.

    The rows of a .txt show which of these they are: PaddleNLP's examples call all of them train.txt.
    """
    if is_workbook(file):
        return BY_SUFFIX[".csv"]._replace(separator=",")
    suffix = file.suffix.lower()
    if suffix == ".txt" and file.is_file():
        return _shown_format(file)
    return RowFormat(TAGGED) if suffix in TAGGED_SUFFIXES else BY_SUFFIX.get(suffix, BY_SUFFIX[".tsv"])


def _shown_format(file: Path) -> RowFormat:
    try:
        with open_stream(file, no_progress) as stream:
            sample = stream.peek(SAMPLE_BYTES)[:SAMPLE_BYTES].decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return BY_SUFFIX[".tsv"]  # whoever opens it reports that
    lines = sample.split("\n")[:-1] or [sample]
    if looks_tagged(lines[:SAMPLE_ROWS]):
        return RowFormat(TAGGED)
    return BY_SUFFIX[".jsonl" if sample.lstrip().startswith(("{", "[")) else ".tsv"]


@contextmanager
def opened(file: Path, row_format: RowFormat, advance: Callable[[int], None] = no_progress) -> Iterator[Rows]:
    """The rows of a file of any size. `advance` gets the number of bytes that were read, about every MiB.

    Raises:
        RowError: the file cannot be opened or read, also later in the context, or is not text.
    """
    try:
        if is_brat(file):
            yield BratRows(file)
            return
        if is_workbook(file):
            yield opened_sheet(file, row_format)
            return
        with open_stream(file, advance) as stream:
            if row_format.encoding == "utf-8":
                refuse_non_text(stream.peek(SAMPLE_BYTES), file.name)
                stream = with_line_feeds(stream, file)
            yield Rows(as_utf8(stream, row_format.encoding), file.name, row_format)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = getattr(error, "strerror", None) or error
        raise RowError(None, f"cannot be read: {why}", "check the path and its permissions") from error


def filled_lines(rows: Rows) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1; blank ones too, but not those of a file that has no others.

    Raises:
        RowError: a line cannot be read, or all are blank.
    """
    for number, line in rows.texts():
        if isinstance(line, RowError):
            raise line
        rows.blank += not line.strip()
        yield number, line
    refuse_empty(rows.blank < rows.lines.number)


def refuse_empty(filled: bool) -> None:
    """Check that a file that was read is `filled`.

    Raises:
        RowError: it is not.
    """
    if not filled:
        raise RowError(None, "is empty", "give a file with rows")


def explained(error: RowError, file: Path, encoding: str = "utf-8") -> Finding:
    """The finding about an error after which a file was not read on."""
    if error.kind == BROKEN_CSV:
        return Finding("error", file, error.line, message("draft.broken_csv", why=error.why), error.fix)
    if not isinstance(error, NotUtf8Error):
        reason: str = message("mistake.this_file" if error.line is None else "mistake.this_line", what=error.what)
        return Finding("error", file, error.line, reason, error.fix)
    if not (error.cut or error.mixed or encoding != "utf-8"):
        guessed = decode(error.sample, file)[1]
        assert guessed is not None, "the first line of the sample does not decode"
        return replace(guessed, line=guessed.line and error.line)  # what is no text has no lines
    reason, fix = message("found.two_encodings"), message("found.convert_each")
    if error.cut:
        reason, fix = message("found.cut_short"), message("found.take_again")
    elif encoding != "utf-8":
        reason, fix = message("found.not_throughout", encoding=encoding), message("found.if_mixed")
    return Finding("error", file, error.line, reason, fix)
