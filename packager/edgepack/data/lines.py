"""Reader of the lines of a text file in constant memory.

Files are UTF-8, with or without a byte order mark. For anything else a finding names the probable encoding or format.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from edgepack.recipe.findings import Finding
from edgepack.recipe.validate_data import TAGGED_SUFFIXES
from edgepack.recipe.yaml import decode
from edgepack.util.encodings import conversion

MAX_LINE_BYTES: Final = 16 * 2**20  # far above any text; reading of a file without line ends stops here
_BLOCK_BYTES: Final = 2**20  # between two calls of `advance`
_SAMPLE_BYTES: Final = 64 * 1024  # after a line that is not UTF-8, to detect the encoding
_CUT: Final = "unexpected end of data"  # the reason in Python's UnicodeDecodeError
_CUT_OF: Final = ("incomplete multibyte sequence", "truncated data")  # byte order marks of other encodings
_BOM: Final = b"\xef\xbb\xbf"
_PACKED: Final = (
    (b"PK\x03\x04", "a zip archive, perhaps an Excel workbook", "save it as `CSV UTF-8` from the program that made it"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "save it as `CSV UTF-8` from the program that made it"),
    (b"\x1f\x8b", "compressed with gzip", "unpack it first: gunzip -c FILE > UNPACKED"),
    (
        b"PAR1\x15",
        "a Parquet file",
        'write it as JSON lines: pandas.read_parquet(A).to_json(B, orient="records", lines=True)',
    ),
)


class UnreadableError(Exception):
    """The rest of a file cannot be read; `finding` is the reason. It never leaves this package."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


def old_line_ends(first: str) -> tuple[str, str] | None:
    """Reason and fix if `first`, read up to its `\\n`, holds many lines that end in `\\r`; None otherwise."""
    if "\r" not in first.rstrip("\r\n"):
        return None
    reason = "its lines end in carriage returns alone, as on old Macs"
    return reason, "convert it: tr '\\r' '\\n' < FILE > CONVERTED"


def no_progress(read_bytes: int) -> None:
    """Ignore the number of bytes."""


def text_lines(file: Path, advance: Callable[[int], None] = no_progress, encoding: str = "utf-8") -> Iterator[str]:
    """Lines of `file` with their line ends, split at `\\n` only.

    Args:
        file: of any size; one line and a buffer are held at a time.
        advance: called about every MiB and at the end, with the number of bytes read since the last call.
        encoding: an encoding other than UTF-8, for files that are converted.

    Raises:
        UnreadableError: the file cannot be opened, is empty or compressed, or a line is not UTF-8 or longer than
            MAX_LINE_BYTES.
    """
    try:
        with file.open("rb") as stream:
            read = _decoded if encoding == "utf-8" else partial(_recoded, encoding=encoding)
            yield from read(stream, file, advance)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = getattr(error, "strerror", None) or error
        raise _unreadable(file, None, f"it cannot be read: {why}", "check the path and its permissions") from error


def _decoded(stream: BinaryIO, file: Path, advance: Callable[[int], None]) -> Iterator[str]:
    empty, other_than_ascii, unsaid = True, False, 0
    for number, read in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), start=1):
        unsaid += len(read)
        if unsaid >= _BLOCK_BYTES:
            advance(unsaid)
            unsaid = 0
        raw = read
        if number == 1:
            _refuse_packed(read, file)
            raw = read.removeprefix(_BOM)
        if len(read) > MAX_LINE_BYTES:
            reason = f"this line has more than {MAX_LINE_BYTES // 2**20} MiB"
            raise _unreadable(file, number, reason, "put each row on a line of its own")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _undecodable(read, stream, number, other_than_ascii, file, error) from error
        other_than_ascii = other_than_ascii or not raw.isascii()
        empty = empty and not line.strip()
        yield line
    advance(unsaid)
    if empty:
        raise _unreadable(file, None, "the file is empty", "give a file with rows")


def _recoded(stream: BinaryIO, file: Path, advance: Callable[[int], None], encoding: str) -> Iterator[str]:
    before = number = 0
    try:
        with io.TextIOWrapper(stream, encoding, newline="\n") as text:
            for line in text:
                yield line
                number += 1
                if stream.tell() - before >= _BLOCK_BYTES:
                    advance(stream.tell() - before)
                    before = stream.tell()
            advance(stream.tell() - before)
    except UnicodeDecodeError as error:
        if error.end == len(error.object) and error.reason in _CUT_OF:
            raise _cut_off(file, number + 1) from error
        # The lines before those of the block that could not be read were yielded; a line end is one byte but in UTF-16.
        known = None if encoding.startswith("utf-16") else number + error.object.count(b"\n", 0, error.start) + 1
        reason = f"it is not {encoding} throughout: {error.reason}"
        raise _unreadable(file, known, reason, "if the file mixes encodings, take it from its source again") from error


def _refuse_packed(start: bytes, file: Path) -> None:
    for magic, what, fix in _PACKED:
        if start.startswith(magic):
            raise _unreadable(file, None, f"this is {what}, not a table in plain text", fix)
    head = start[:1024]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (even + odd) * 4 < max(1, len(head)):
        return
    if min(even, odd) * 4 > max(even, odd):
        reason, fix = "this is not text: a quarter of its first bytes are NUL", "give a .tsv, .csv or .jsonl file"
        raise _unreadable(file, None, reason, fix)
    # UTF-16 without a byte order mark also decodes as UTF-8 if it is ASCII: every second byte is NUL.
    wide = "UTF-16LE" if odd > even else "UTF-16BE"
    reason = f"this line is not UTF-8; the file is probably {wide}"
    raise _unreadable(file, 1, reason, conversion(wide, file.name))


def _undecodable(
    read: bytes, stream: BinaryIO, number: int, other_than_ascii: bool, file: Path, error: UnicodeDecodeError
) -> UnreadableError:
    if error.reason == _CUT and (other_than_ascii or not read[: error.start].isascii()):
        return _cut_off(file, number)
    if other_than_ascii:
        reason = "this line is not UTF-8, though lines before it are: the file mixes two encodings"
        return _unreadable(file, number, reason, "take the rows from their sources again, each converted to UTF-8")
    sample = read + stream.read(_SAMPLE_BYTES)
    _, finding = decode(sample, file)
    assert finding is not None, "the first line of the sample does not decode"
    return UnreadableError(replace(finding, line=finding.line and number))


def _cut_off(file: Path, line: int | None) -> UnreadableError:
    reason = "the file ends in the middle of a character: its end is missing"
    return _unreadable(file, line, reason, "take it from its source again, or remove this last line")


def _unreadable(file: Path, line: int | None, reason: str, fix: str) -> UnreadableError:
    return UnreadableError(Finding("error", file, line, reason, fix))


@dataclass(frozen=True)
class FileFormat:
    """Format of a file. `separator` is None for JSON lines and for CoNLL (`tagged`: a token and its tag on each line).

    `encoding` is a codec of Python; files of a recipe are UTF-8.
    """

    separator: str | None
    encoding: str = "utf-8"
    tagged: bool = False


def form_by_suffix(file: Path) -> FileFormat:
    """The format by suffix: .jsonl is JSON lines, .conll and .bio are CoNLL, .csv has commas, other files have tabs."""
    suffix = file.suffix.lower()
    if suffix in TAGGED_SUFFIXES:
        return FileFormat(None, tagged=True)
    return {".jsonl": FileFormat(None), ".csv": FileFormat(",")}.get(suffix, FileFormat("\t"))
