"""Lines of files of any size; what is no UTF-8 ends the reading and is named."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.data import lines
from edgepack.data.lines import UnreadableError, text_lines


def made(folder: Path, raw: bytes) -> Path:
    file = folder / "a.tsv"
    file.write_bytes(raw)
    return file


def reason(file: Path) -> str:
    with pytest.raises(UnreadableError) as stopped:
        list(text_lines(file))
    return f"{stopped.value.finding.line}: {stopped.value.finding.reason}"


def test_lines_keep_their_ends_and_are_cut_at_line_feeds_alone(tmp_path: Path) -> None:
    text = "甲\r\nb\u2028c\x85\x0bd\re\n\nf"
    assert list(text_lines(made(tmp_path, codecs.BOM_UTF8 + text.encode()))) == [
        "甲\r\n",
        "b\u2028c\x85\x0bd\re\n",
        "\n",
        "f",
    ]


def test_a_line_is_given_before_the_next_is_looked_at(tmp_path: Path) -> None:
    read = text_lines(made(tmp_path, "一\n".encode() + "二\n".encode("gb18030")))
    assert next(read) == "一\n"
    with pytest.raises(UnreadableError):
        next(read)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "None: the file is empty"),
        (b" \n\t\r\n", "None: the file is empty"),
        ("text\nok\n".encode("utf-16-le"), "1: this line is not UTF-8; the file is probably UTF-16LE"),
        ("text\nok\n".encode("utf-16-be"), "1: this line is not UTF-8; the file is probably UTF-16BE"),
        ("ok，不错".encode()[:-2], "1: the file ends in the middle of a character: its end is missing"),
        (b"a\n\xff" + b"\n\xff" * 100_000, "2: this line is not UTF-8"),
        (bytes(8), "None: this is not text: a quarter of its first bytes are NUL"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, raw: bytes, expected: str) -> None:
    """Beside what the golden tables show."""
    assert reason(made(tmp_path, raw)) == expected


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    assert list(text_lines(made(tmp_path, b"a" * 1000))) == ["a" * 1000]
    assert reason(made(tmp_path, b"x\n" + b"a" * 1001)).startswith("2: this line has more than")


@pytest.mark.parametrize("name", ["absent.tsv", ".", "nul\0.tsv"])
def test_what_is_no_file_is_a_finding(tmp_path: Path, name: str) -> None:
    assert reason(tmp_path / name).startswith("None: it cannot be read")


def test_every_byte_is_counted_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 50)
    told: list[int] = []
    for _ in text_lines(made(tmp_path, b"0123456789\n" * 100), told.append):
        assert sum(told) <= 1100
    assert sum(told) == 1100
    assert max(told) < 100


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030"])
def test_other_encodings_can_be_asked_for(tmp_path: Path, encoding: str) -> None:
    file = made(tmp_path, "文本\t标签\r\n很好\t1".encode(encoding))
    assert list(text_lines(file, encoding=encoding)) == ["文本\t标签\r\n", "很好\t1"]
    broken = made(tmp_path, file.read_bytes() + {"utf-16": b"\x00\xdca\x00", "gb18030": b"\xff\n\n\n"}[encoding])
    with pytest.raises(UnreadableError, match=r"not .* throughout") as stopped:
        list(text_lines(broken, encoding=encoding))
    assert stopped.value.finding.line == {"utf-16": None, "gb18030": 2}[encoding]


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030", "cp950"])
def test_a_file_of_another_encoding_that_was_cut_is_named(tmp_path: Path, encoding: str) -> None:
    file = made(tmp_path, "text\tlabel\n很好\t好".encode(encoding)[:-1])
    with pytest.raises(UnreadableError, match="ends in the middle of a character") as stopped:
        list(text_lines(file, encoding=encoding))
    assert stopped.value.finding.line == 2


SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FOLDER
@given(st.binary(max_size=300), st.sampled_from(["utf-8", "utf-16", "gb18030"]))
def test_any_bytes_are_lines_or_a_finding(tmp_path: Path, raw: bytes, encoding: str) -> None:
    def read() -> Iterator[str]:
        try:
            yield from text_lines(made(tmp_path, raw), encoding=encoding)
        except UnreadableError as error:
            assert error.finding.reason

    assert all(line.count("\n") <= 1 for line in read())
