"""Files that cannot be read: the finding names the cause and the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.data.files import explained, filled_lines, format_of, opened
from edgepack.recipe.findings import Finding
from edgepack_runtime.rows.formats import JSON, LINES, TABLE, TAGGED, RowFormat
from edgepack_runtime.rows.lines import RowError


def made(folder: Path, raw: bytes) -> Path:
    file = folder / "a.txt"
    file.write_bytes(raw)
    return file


def lines(file: Path, encoding: str = "utf-8") -> Iterator[str | Finding]:
    """Lines up to the finding about the rest."""
    try:
        with opened(file, RowFormat(LINES, encoding=encoding)) as rows:
            for _, line in filled_lines(rows):
                yield line
    except RowError as error:
        yield explained(error, file, encoding)


def found(file: Path, encoding: str = "utf-8") -> Finding:
    [*_, last] = lines(file, encoding)
    assert isinstance(last, Finding)
    return last


def test_a_line_is_given_before_the_next_is_looked_at(tmp_path: Path) -> None:
    read = lines(made(tmp_path, "一\n".encode() + "二\n".encode("gb18030")))
    assert next(read) == "一\n"
    assert isinstance(next(read), Finding)


@pytest.mark.parametrize(
    ("raw", "line", "words"),
    [
        (b"", None, "is empty"),
        (b" \n\t\r\n", None, "is empty"),
        ("text\nok\n".encode("utf-16-le"), 1, "UTF-16LE"),
        ("text\nok\n".encode("utf-16-be"), 1, "UTF-16BE"),
        ("ok，不错".encode()[:-2], 1, "ends in the middle of a character"),
        ("\ufeffok，\n不".encode()[:-2], 2, "ends in the middle of a character"),
        ("\ufeffok\n不".encode()[:-2], 2, "is not UTF-8"),
        ("好\n".encode() + "很好\n".encode("gb18030"), 2, "mixes two encodings"),
        (b"a\n\xff" + b"\n\xff" * 100_000, 2, "is not UTF-8"),
        (b"a\xff\x01\x02\n", None, "is not a text file"),
        (bytes(8), None, "is not text"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, raw: bytes, line: int | None, words: str) -> None:
    """Beside what the golden tables show."""
    finding = found(made(tmp_path, raw))
    assert (finding.line, words in finding.reason) == (line, True)


@pytest.mark.parametrize("name", ["absent.tsv", ".", "nul\0.tsv"])
def test_what_is_no_file_is_a_finding(tmp_path: Path, name: str) -> None:
    finding = found(tmp_path / name)
    assert (finding.line, "cannot be read" in finding.reason) == (None, True)


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030"])
def test_lines_that_are_not_in_the_encoding_of_the_file_are_named(tmp_path: Path, encoding: str) -> None:
    raw = "文本\t标签\r\n很好\t1\n".encode(encoding)
    assert list(lines(made(tmp_path, raw), encoding)) == ["文本\t标签\r\n", "很好\t1\n"]
    finding = found(made(tmp_path, raw + {"utf-16": b"\x00\xdca\x00", "gb18030": b"\xff\n\n\n"}[encoding]), encoding)
    assert (finding.line, f"not {encoding} throughout" in finding.reason) == (3, True)


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030", "cp950"])
def test_a_file_of_another_encoding_that_was_cut_is_named(tmp_path: Path, encoding: str) -> None:
    finding = found(made(tmp_path, "text\tlabel\n很好\t好".encode(encoding)[:-1]), encoding)
    assert (finding.line, "ends in the middle of a character" in finding.reason) == (2, True)


@pytest.mark.parametrize(
    ("name", "expected"), [("a.conll", RowFormat(TAGGED)), ("a.BIO", RowFormat(TAGGED)), ("a", RowFormat(TABLE, "\t"))]
)
def test_other_suffixes_are_tables_or_conll(name: str, expected: RowFormat) -> None:
    assert format_of(Path(name)) == expected


SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FOLDER
@given(st.binary(max_size=300), st.sampled_from(["utf-8", "utf-16", "gb18030"]))
def test_any_bytes_are_lines_or_a_finding(tmp_path: Path, raw: bytes, encoding: str) -> None:
    read = list(lines(made(tmp_path, raw), encoding))
    assert all(isinstance(line, str) for line in read[:-1])
    assert all(line.count("\n") <= 1 if isinstance(line, str) else line.reason for line in read)


@pytest.mark.parametrize(
    ("content", "kind"),
    [("text\tlabel\n好\ta\n", TABLE), ("北\tB-c\n京\tI-c\n\n好\tO\n", TAGGED), ('{"text": "好"}\n', JSON), ("", TABLE)],
)
def test_a_txt_shows_its_format(tmp_path: Path, content: str, kind: str) -> None:
    (tmp_path / "train.txt").write_text(content, encoding="utf-8")
    assert format_of(tmp_path / "train.txt").kind == kind
