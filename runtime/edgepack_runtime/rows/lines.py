"""Lines of a file or stream of any size, in constant memory, with the encoding, limits and errors of each.

A line ends at `\\n` only. Files are UTF-8, with or without a byte order mark; other encodings are converted on the way.
"""

from __future__ import annotations

import codecs
import io
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from edgepack_runtime.rows.encodings import SAMPLE_BYTES, UTF16_MARKS, conversion

MAX_LINE_BYTES = 16 * 2**20  # far above any text; reading of a file without line ends stops here
_BLOCK_BYTES = 2**20  # between two calls of `advance`
SAVE_AS_CSV = "save it as `CSV UTF-8` from the program that made it"
_PACKED = (
    (b"PK\x03\x04", "a zip archive, perhaps an Excel workbook", SAVE_AS_CSV),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", SAVE_AS_CSV),
    (b"\x1f\x8b", "compressed with gzip", "unpack it first: gunzip -c FILE > UNPACKED"),
    (
        b"PAR1\x15",
        "a Parquet file",
        'write it as JSON lines: pandas.read_parquet(A).to_json(B, orient="records", lines=True)',
    ),
)


class RowError(Exception):
    """A row that cannot be read, or a file.

    Args:
        line: from 1; None if the error is about the whole file.
        what: the end of a sentence that begins with the line or the file, such as `is not UTF-8`.
        fix: what to do.
        why: the cause, if another program named it.
        kind: in a few words; `whole` errors are not about one row, and the rows after them make no sense.
        start: offset of the line in the UTF-8 text, in bytes.
    """

    def __init__(
        self,
        line: Optional[int],
        what: str,
        fix: str,
        *,
        why: str = "",
        kind: str = "unreadable",
        whole: bool = True,
        start: int = 0,
    ) -> None:
        super().__init__(what)
        self.line, self.what, self.fix, self.why, self.kind = line, what, fix, why, kind
        self.whole, self.start = whole, start


class NotUtf8Error(RowError):
    """A line is not in the encoding of its file."""


class Lines:
    """Lines of a stream with their ends, of which one and a buffer are held at a time.

    Args:
        stream: UTF-8.
        most_bytes: the longest line.
    """

    def __init__(self, stream: io.BufferedReader, most_bytes: int = MAX_LINE_BYTES) -> None:
        self._stream, self._most = stream, most_bytes
        self._error: Optional[RowError] = None
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
        readline = partial(self._stream.readline, self._most + 1)
        for raw in iter(readline, b""):
            self.number += 1
            size = len(raw)
            self.offset += size
            if self.number == 1 and raw.startswith(codecs.BOM_UTF8):
                self.has_mark, raw = True, raw[len(codecs.BOM_UTF8) :]
            if size > self._most:
                what = f"is longer than {self._most // 2**20} MiB"
                self._fail(RowError(self.number, what, "put each row on a line of its own"))
                yield ""
                self._skip_to_the_end_of_line()
                continue
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                start = self.offset - size
                self._fail(NotUtf8Error(self.number, "is not UTF-8", "", why=error.reason, start=start))
                line = raw.decode("utf-8", "surrogateescape")
            yield line

    def _fail(self, error: RowError) -> None:
        self._error, self.failed = self._error or error, True

    def _skip_to_the_end_of_line(self) -> None:
        for raw in iter(partial(self._stream.readline, _BLOCK_BYTES), b""):
            self.offset += len(raw)
            if raw.endswith(b"\n"):
                return


def open_stream(file: Path, advance: Optional[Callable[[int], None]] = None) -> io.BufferedReader:
    """Open a file for `as_utf8`. `advance` gets the number of bytes that were read, about every MiB.

    Raises:
        OSError: it cannot be opened.
        ValueError: its path holds NUL.
    """
    if advance is None:
        return file.open("rb", SAMPLE_BYTES)  # type: ignore[return-value]
    return io.BufferedReader(_Counted(file, advance), _BLOCK_BYTES)


class _Counted(io.FileIO):
    """A file that tells how much of it was read."""

    def __init__(self, file: Path, advance: Callable[[int], None]) -> None:
        super().__init__(str(file))
        self._advance = advance

    def readinto(self, buffer: Any) -> Optional[int]:
        count = super().readinto(buffer)
        self._advance(count or 0)
        return count


def whole_lines(sample: bytes) -> bytes:
    """The whole lines of `sample`; all of it if it has none."""
    return sample[: sample.rfind(b"\n") + 1] or sample


def refuse_other_files(start: bytes, name: str) -> None:
    """Check that a file called `name` that begins with `start` is text.

    Raises:
        RowError: it is a workbook, an archive, other binary data, or UTF-16 without a byte order mark.
    """
    for magic, what, fix in _PACKED:
        if start.startswith(magic):
            raise RowError(None, f"is {what}, not a table in plain text", fix)
    head = start[:1024]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if start.startswith(UTF16_MARKS) or (even + odd) * 4 < max(1, len(head)):
        return
    if min(even, odd) * 4 > max(even, odd):
        what = "is not text: a quarter of its first bytes are NUL"
        raise RowError(None, what, "give a .tsv, .csv or .jsonl file")
    # UTF-16 without a byte order mark also decodes as UTF-8 if it is ASCII: every second byte is NUL.
    wide = "UTF-16LE" if odd > even else "UTF-16BE"
    raise RowError(1, f"is not UTF-8; the file is probably {wide}", conversion(wide, name))


def as_utf8(stream: io.BufferedReader, encoding: str) -> io.BufferedReader:
    """A stream in a Python codec as UTF-8. What is no text in it is none in UTF-8 either."""
    return stream if encoding == "utf-8" else io.BufferedReader(_Recoded(stream, encoding), SAMPLE_BYTES)


_NO_TEXT = "edgepack-no-text"  # handler of decoding errors
codecs.register_error(_NO_TEXT, lambda error: ("\udcff", getattr(error, "end", 0)))  # a byte that UTF-8 never has


class _Recoded(io.RawIOBase):
    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)(_NO_TEXT)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            raw = self._stream.read1(SAMPLE_BYTES)  # of a pipe as much as there is
            self._left = self._decoder.decode(raw, final=not raw).encode("utf-8", "surrogateescape")
            if not raw and not self._left:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
