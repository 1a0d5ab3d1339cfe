"""Lines of files of any size: what cannot be read is an error in its place, and costs no other line."""

from __future__ import annotations

import codecs
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.rows import lines as module
from edgepack_runtime.rows.lines import Lines, RowError, as_utf8, open_stream, refuse_non_text, with_line_feeds


def read(raw: bytes, encoding: str = "utf-8", **limits: int) -> list[str | int | None]:
    """Lines, or the numbers of those that cannot be read."""
    lines = Lines(as_utf8(io.BufferedReader(io.BytesIO(raw)), encoding), **limits)
    return [lines.error().line if lines.failed else line for line in lines]


def test_lines_keep_their_ends_and_are_cut_at_line_feeds_alone() -> None:
    text = "甲\r\nb\u2028c\x85\x0bd\re\n\nf"
    assert read(codecs.BOM_UTF8 + text.encode()) == ["甲\r\n", "b\u2028c\x85\x0bd\re\n", "\n", "f"]


def test_a_line_is_given_before_the_next_is_read() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            buffer[:4] = "好\n".encode()
            return 4

    lines = iter(Lines(io.BufferedReader(Endless())))
    assert [next(lines), next(lines)] == ["好\n", "好\n"]


def test_offsets_and_the_mark_are_those_of_the_stream() -> None:
    lines = Lines(io.BufferedReader(io.BytesIO(codecs.BOM_UTF8 + b"a\nbc\n")))
    assert [(line, lines.number, lines.offset) for line in lines] == [("a\n", 1, 5), ("bc\n", 2, 8)]
    assert lines.has_mark


def test_a_line_that_cannot_be_read_costs_no_other() -> None:
    assert read(b"a\n\xff\nb") == ["a\n", 2, "b"]
    long = b"a\n" + b"x" * 3000 + b"\nb\n" + b"y" * 1001
    assert read(long, most_bytes=1000) == ["a\n", 2, "b\n", 4]
    assert read(b"a" * 1000, most_bytes=1000) == ["a" * 1000]


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030", "cp950"])
def test_other_encodings_are_converted(encoding: str) -> None:
    raw = "文本\t標籤\r\n很好\t1\n".encode(encoding)
    assert read(raw, encoding) == ["文本\t標籤\r\n", "很好\t1\n"]
    broken = {"utf-16": b"\x00\xdcx\x00\n\x00", "gb18030": b"\xff\n", "cp950": b"\xff\n"}[encoding]
    assert read(raw + broken, encoding) == ["文本\t標籤\r\n", "很好\t1\n", 3]


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (b"PK\x03\x04", None),
        (b"\xd0\xcf\x11\xe0", None),
        (b"\x1f\x8b", None),
        (b"PAR1\x15", None),
        (bytes(8), None),
        ("text\nok\n".encode("utf-16-le"), 1),
        ("text\nok\n".encode("utf-16-be"), 1),
    ],
)
def test_what_is_no_text_is_refused(start: bytes, line: int | None) -> None:
    with pytest.raises(RowError) as refused:
        refuse_non_text(start, "a.tsv")
    assert refused.value.line == line


@pytest.mark.parametrize("start", [b"", b"text\n", "文本\n".encode("utf-16"), b"a\x00b,1\n"])
def test_text_is_not_refused(start: bytes) -> None:
    refuse_non_text(start, "a.tsv")


def test_every_byte_is_counted_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 50)
    (tmp_path / "a.tsv").write_bytes(b"0123456789\n" * 100)
    told: list[int] = []
    with open_stream(tmp_path / "a.tsv", told.append) as stream:
        for number, _ in enumerate(Lines(stream), start=1):
            assert sum(told) >= 11 * number
    assert (sum(told), max(told)) == (1100, 50)


@given(st.binary(max_size=300), st.sampled_from(["utf-8", "utf-16", "gb18030"]))
def test_any_bytes_are_lines(raw: bytes, encoding: str) -> None:
    raw = codecs.BOM_UTF16_LE + raw if encoding == "utf-16" else raw
    assert all(line is not None and (isinstance(line, int) or line.count("\n") <= 1) for line in read(raw, encoding))


def test_a_sparse_file_is_not_searched_to_its_end(tmp_path: Path) -> None:
    for begin in (b"text\rb\r", b"a long line"):
        with (tmp_path / "a.txt").open("wb") as file:
            file.write(begin)
            file.truncate(1 << 42)
        with open_stream(tmp_path / "a.txt") as stream:
            lines = Lines(with_line_feeds(stream, tmp_path / "a.txt"), 1 << 16)
            errors = [lines.error() for _ in lines if lines.failed]
        assert errors[-1].ends
        assert lines.offset < 2 << 30
