"""Lines of a file or stream of any size, in constant memory. Other encodings than UTF-8 are converted on the way."""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from edgepack_runtime.messages import message
from edgepack_runtime.rows.encodings import SAMPLE_BYTES, UTF16_MARKS, conversion

MAX_LINE_BYTES = 16 * 2**20  # far above any text; reading of a file without line ends stops here
SAVE_AS_CSV = message("encoding.save_as_csv")
_BLOCK_BYTES = 2**20  # between two calls of `advance`
_MOST_SKIPPED_BYTES = 1 << 30  # of a line that is too long, up to its end
_PARQUET = 'pandas.read_parquet(A).to_json(B, orient="records", lines=True)'
_PACKED = {
    b"PK\x03\x04": (message("encoding.zip"), SAVE_AS_CSV),
    b"\xd0\xcf\x11\xe0": (message("encoding.workbook"), SAVE_AS_CSV),
    b"\x1f\x8b": (message("encoding.gzip"), message("encoding.unpack")),
    b"PAR1\x15": (message("encoding.parquet"), message("encoding.json_lines", command=_PARQUET)),
}
_CUT = ("unexpected end of data", "incomplete multibyte sequence", "truncated data")  # of UnicodeDecodeError
# Two bytes that UTF-8 never has, as `surrogateescape` writes them in text. They stand for what is no text in another
# encoding: the first anywhere, the second where the file ends in the middle of a character.
_NO_TEXT, _CUT_TEXT = "\udcff", "\udcfe"


@dataclass(eq=False)
class RowError(Exception):
    """A row or a whole file that cannot be read."""

    line: Optional[int]  # from 1; None for the whole file
    what: str  # the end of a sentence that begins with the line or the file, such as `is not UTF-8`
    fix: str = ""
    why: str = ""  # the cause, if a library names it
    kind: str = "unreadable"
    fatal: bool = True  # whether the rows after it make no sense either
    fields: Sequence[str] = ()  # of a row of a table that has another form than the others
    ends: bool = False  # whether the rows after it are not read at all


@dataclass(eq=False)
class NotUtf8Error(RowError):
    """A line that is not in the encoding of its file."""

    cut: bool = False  # the file ends in the middle of a character
    mixed: bool = False  # lines before it have characters beyond ASCII
    sample: bytes = b""  # the line and some of those after it


class Lines:
    """Lines of a stream with their ends, at `\\n` only. Memory holds one line and a buffer.

    Args:
        stream: UTF-8, with or without a byte order mark.
        most_bytes: the longest line.
    """

    def __init__(self, stream: io.BufferedReader, most_bytes: int = MAX_LINE_BYTES) -> None:
        self._stream, self._most = stream, most_bytes
        self._error: Optional[RowError] = None
        self._ascii = True
        self.number = self.offset = 0  # lines and bytes that were read
        self.has_mark = False  # whether the first line begins with a byte order mark
        self.failed = False  # whether a line could not be read since the last call of `error`

    def error(self) -> RowError:
        """The error of the first line that could not be read since the last call."""
        error, self._error, self.failed = self._error, None, False
        assert error is not None, "no line has failed"
        return error

    def __iter__(self) -> Iterator[str]:
        """Lines; one that is too long is empty, and bytes of one that is not UTF-8 are escaped."""
        for raw in iter(partial(self._stream.readline, self._most + 1), b""):
            self.number += 1
            self.offset += len(raw)
            if self.number == 1 and raw.startswith(codecs.BOM_UTF8):
                self.has_mark, raw = True, raw[len(codecs.BOM_UTF8) :]
            if len(raw) > self._most:
                what = message("rows.too_long", mib=self._most // 2**20)
                self._fail(RowError(self.number, what, message("rows.own_line")))
                yield ""  # a caller that stops here reads no further
                begin = self.offset
                while not raw.endswith(b"\n") and (raw := self._stream.readline(_BLOCK_BYTES)):
                    self.offset += len(raw)
                    if self.offset - begin > _MOST_SKIPPED_BYTES:
                        what = message("rows.too_long", mib=_MOST_SKIPPED_BYTES >> 20)
                        self._fail(RowError(self.number, what, message("rows.own_line"), ends=True))
                        yield ""
                        return
                continue
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                self._fail(self._not_utf8(raw, error))
                line = raw.decode("utf-8", "surrogateescape")
            self._ascii = self._ascii and raw.isascii()
            yield line

    def _fail(self, error: RowError) -> None:
        self._error, self.failed = self._error or error, True

    def _not_utf8(self, raw: bytes, error: UnicodeDecodeError) -> RowError:
        # A single odd byte after nothing but ASCII shows another encoding rather than a file that was cut.
        is_first_odd_byte = self._ascii and raw[: error.start].isascii()
        cut = error.reason in _CUT and not is_first_odd_byte
        if isinstance(self._stream.raw, _Recoded) and raw.endswith(_CUT_TEXT.encode("utf-8", "surrogateescape")):
            cut = True
        sample = raw + self._stream.peek(SAMPLE_BYTES) if self._ascii else raw  # of a mixed file this line is enough
        return NotUtf8Error(self.number, message("encoding.is_not"), cut=cut, mixed=not self._ascii, sample=sample)


def open_stream(file: Path, advance: Optional[Callable[[int], None]] = None) -> io.BufferedReader:
    """Open a file for `as_utf8`. `advance` gets the number of bytes that were read, about every MiB.

    Raises:
        OSError: it cannot be opened.
        ValueError: its path holds NUL.
    """
    return io.BufferedReader(_Counted(file, advance), SAMPLE_BYTES if advance is None else _BLOCK_BYTES)


class _Counted(io.FileIO):
    def __init__(self, file: Path, advance: Optional[Callable[[int], None]]) -> None:
        super().__init__(str(file))
        self._advance = advance

    def readinto(self, buffer: Any) -> Optional[int]:
        count = super().readinto(buffer)
        if self._advance is not None:
            self._advance(count or 0)
        return count


def refuse_non_text(start: bytes, name: str) -> None:
    """Check that a file called `name` that begins with `start` is text.

    Raises:
        RowError: it is a workbook, an archive, other binary data, or UTF-16 without a byte order mark.
    """
    for magic, (what, fix) in _PACKED.items():
        if start.startswith(magic):
            raise RowError(None, message("encoding.no_table", what=what), fix)
    head = start[:1024]
    even, odd = head[::2].count(0), head[1::2].count(0)
    has_few_nul = (even + odd) * 4 < max(1, len(head))
    if start.startswith(UTF16_MARKS) or has_few_nul:
        return
    is_on_both_sides = min(even, odd) * 4 > max(even, odd)
    if is_on_both_sides:
        raise RowError(None, message("encoding.nul"), message("encoding.give_table"))
    # UTF-16 without a byte order mark also decodes as UTF-8 if it is ASCII: every second byte is NUL.
    wide = "UTF-16LE" if odd > even else "UTF-16BE"
    raise RowError(1, message("encoding.is_probably", name=wide), conversion(wide, name))


def as_utf8(stream: io.BufferedReader, encoding: str) -> io.BufferedReader:
    """A stream in a Python codec, as UTF-8. Bytes that are invalid in the codec become bytes that are in UTF-8."""
    return stream if encoding == "utf-8" else io.BufferedReader(_Recoded(stream, encoding), SAMPLE_BYTES)


def with_line_feeds(stream: io.BufferedReader, file: Path) -> io.BufferedReader:
    """The stream of a UTF-8 `file`; if all its lines end in `\r` alone, as on old Macs, with `\n` in its place.

    Raises:
        OSError: the file cannot be read.
    """
    sample = stream.peek(SAMPLE_BYTES)
    if b"\r" not in sample or b"\n" in sample:
        return stream
    with file.open("rb") as whole:  # what follows decides, too: a text may hold such a character
        # No text has NUL: without it in mind, a sparse file of terabytes would be searched to its end.
        if any(b"\n" in block or b"\0" in block for block in iter(partial(whole.read, _BLOCK_BYTES), b"")):
            return stream
    return io.BufferedReader(_Blocks(raw.replace(b"\r", b"\n") for raw in _blocks(stream)), SAMPLE_BYTES)


def begun(stream: io.BufferedReader) -> io.BufferedReader:
    """`stream`, of which the first `peek` has a line end, `SAMPLE_BYTES` or all there is.

    A pipe may give a mark or a character in pieces, from which no encoding is recognised.
    """
    blocks, head = _blocks(stream), b""
    for block in blocks:
        head += block
        if b"\n" in block or len(head) >= SAMPLE_BYTES:
            break
    return io.BufferedReader(_Blocks(chain([head], blocks)), SAMPLE_BYTES)


def _blocks(stream: io.BufferedReader) -> Iterator[bytes]:
    return iter(partial(stream.read1, SAMPLE_BYTES), b"")  # of a pipe as much as there is


class _Blocks(io.RawIOBase):
    """A stream of these bytes."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks, self._left = iter(blocks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            found = next(self._blocks, None)
            if found is None:
                return 0
            self._left = found
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError), "only decoders use it"
    return (_CUT_TEXT if error.reason in _CUT else _NO_TEXT), error.end


codecs.register_error("edgepack-no-text", _escape)


class _Recoded(_Blocks):
    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        decode = codecs.getincrementaldecoder(encoding)("edgepack-no-text").decode
        raw = chain(zip(_blocks(stream), repeat(False)), [(b"", True)])
        super().__init__(decode(block, last).encode("utf-8", "surrogateescape") for block, last in raw)
