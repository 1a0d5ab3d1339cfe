"""Data files as rows of the reader that devices use, and findings about files that cannot be read."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from edgepack.recipe.findings import Finding
from edgepack.recipe.validate_data import TAGGED_SUFFIXES
from edgepack.recipe.yaml import decode
from edgepack_runtime.rows.encodings import SAMPLE_BYTES
from edgepack_runtime.rows.formats import BY_SUFFIX, LINES, RowFormat
from edgepack_runtime.rows.lines import NotUtf8Error, RowError, as_utf8, open_stream, refuse_other_files
from edgepack_runtime.rows.reader import Rows

_CUT: Final = ("unexpected end of data", "incomplete multibyte sequence", "truncated data")  # reasons of codecs
_CUT_OFF: Final = "the file ends in the middle of a character: its end is missing"
_BLOCK_BYTES: Final = 2**20


def no_progress(read_bytes: int) -> None:
    """Ignore the number of bytes."""


@dataclass(frozen=True)
class FileFormat:
    """Format of a file, and its encoding, a codec of Python; files of a recipe are UTF-8.

    `tagged` lines are those of CoNLL: a token and its tag on each.
    """

    rows: RowFormat
    encoding: str = "utf-8"
    tagged: bool = False


def form_by_suffix(file: Path) -> FileFormat:
    """The format by suffix, as devices have it; .conll and .bio are CoNLL, other files have tabs."""
    suffix = file.suffix.lower()
    if suffix in TAGGED_SUFFIXES:
        return FileFormat(RowFormat(LINES), tagged=True)
    return FileFormat(BY_SUFFIX.get(suffix, BY_SUFFIX[".tsv"]))


@contextmanager
def opened(file: Path, advance: Callable[[int], None], form: FileFormat) -> Iterator[Rows]:
    """The rows of a file of any size. `advance` gets the number of bytes that were read, about every MiB.

    Raises:
        RowError: the file cannot be opened or read, also later in the context, or is not text.
    """
    try:
        with open_stream(file, advance) as stream:
            if form.encoding == "utf-8":
                refuse_other_files(stream.peek(SAMPLE_BYTES), file.name)
            yield Rows(as_utf8(stream, form.encoding), file.name, form.rows)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = getattr(error, "strerror", None) or error
        raise RowError(None, f"cannot be read: {why}", "check the path and its permissions") from error


def refuse_empty(rows: Rows, *, filled: bool = False) -> None:
    """Check that one of the lines that were read is `filled`, or not blank.

    Raises:
        RowError: all are blank.
    """
    if not filled and rows.blank >= rows.lines.number:
        raise RowError(None, "is empty", "give a file with rows")


def explained(error: RowError, file: Path, encoding: str = "utf-8") -> Finding:
    """The finding about an error after which a file was not read on; the cause is looked for in the file."""
    found = Finding(
        "error", file, error.line, f"this {'file' if error.line is None else 'line'} {error.what}", error.fix
    )
    if not isinstance(error, NotUtf8Error):
        return found
    with file.open("rb") as stream:
        return _not_utf8(stream, error, found) if encoding == "utf-8" else _not_encoded(stream, encoding, found)


def _not_utf8(stream: BinaryIO, error: RowError, found: Finding) -> Finding:
    """Tell a file in another encoding from one that was cut off, and from one that mixes two encodings."""
    before, left = False, error.start  # whether lines before have characters beyond ASCII
    while left and not before:
        block = stream.read(min(left, _BLOCK_BYTES))
        before, left = not block.removeprefix(codecs.BOM_UTF8).isascii(), left - len(block)
    stream.seek(error.start)
    line = stream.readline().removeprefix(codecs.BOM_UTF8)
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as wrong:
        if wrong.reason in _CUT and (before or not line[: wrong.start].isascii()):
            return replace(found, reason=_CUT_OFF, fix="take it from its source again, or remove this last line")
    if before:
        reason = "this line is not UTF-8, though lines before it are: the file mixes two encodings"
        return replace(found, reason=reason, fix="take the rows from their sources again, each converted to UTF-8")
    _, guessed = decode(line + stream.read(SAMPLE_BYTES), found.file)
    # A file that is no text has no lines.
    return found if guessed is None else replace(guessed, line=guessed.line and error.line)


def _not_encoded(stream: BinaryIO, encoding: str, found: Finding) -> Finding:
    decoder, why = codecs.getincrementaldecoder(encoding)(), ""
    try:
        for block in iter(partial(stream.read, _BLOCK_BYTES), b""):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        why = error.reason
    if why in _CUT:
        return replace(found, reason=_CUT_OFF, fix="take it from its source again, or remove this last line")
    fix = "if the file mixes encodings, take it from its source again"
    return replace(found, reason=f"it is not {encoding} throughout: {why}", fix=fix)
