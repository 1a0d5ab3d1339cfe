"""Folders of brat as rows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from edgepack.artifacts import Row
from edgepack.data import brat
from edgepack.data.brat import is_brat
from edgepack.data.choose_columns import choose_columns
from edgepack.data.draft.profile import profile
from edgepack.data.tables import read_rows
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack_runtime.rows.formats import JSON, RowFormat
from edgepack_runtime.util.spans import Span

TEXT = "\ufeff张三住在北京。\r\n\r\n他去上海了。\n"
NOTES = "T1\t人名 0 2\t张三\nT2\t地名 4 6\t北京\nT3\t地名 13 15\t上海\n"


def folder(path: Path, text: str | bytes, notes: str) -> Path:
    (path / "b.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    (path / "b.ann").write_text(notes, encoding="utf-8")
    return path


def read(path: Path) -> tuple[list[Row], list[str]]:
    log = FindingLog(path)
    rows = [row for _, row in read_rows(path, Columns(spans="spans"), log, row_format=RowFormat(JSON))]
    return rows, [finding.reason for finding in log.findings()]


def test_each_line_of_a_text_has_its_spans(tmp_path: Path) -> None:
    rows, findings = read(folder(tmp_path, TEXT, NOTES))
    assert rows == [
        Row("张三住在北京。", (Span(0, 2, "人名"), Span(4, 6, "地名"))),
        Row("他去上海了。", (Span(2, 4, "地名"),)),
    ]
    assert findings == []
    assert choose_columns(profile(tmp_path)) == Columns(spans="spans")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("R1\t住 Arg1:T1 Arg2:T2", "has relations in b.ann"),
        ("E1\t住:T1", "has events in b.ann"),
        ("T4\t人名 0 1;3 4\t张住", "not within one line"),
        ("T4\t人名 4 15\t北京 上海", "not within one line"),
        ("T4\t人名 90 91\t", "not within one line"),
        ("T4\t人名 5\t", "without a label, a start and an end: T4"),
        (f"T4\t人名 0 {'9' * 5000}\t", "without a label, a start and an end: T4"),
    ],
)
def test_what_is_not_read_is_counted_and_its_rows_are_kept(tmp_path: Path, note: str, words: str) -> None:
    rows, (finding,) = read(folder(tmp_path, TEXT, f"{NOTES}{note}\n#1\tAnnotatorNotes T1\tsure\n"))
    assert len(rows) == 2 and words in finding


def test_a_text_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    assert "not UTF-8: b.txt" in read(folder(tmp_path, "很好".encode("gb18030"), NOTES))[1][0]
    (tmp_path / "b.txt").unlink()
    assert "cannot be read" in read(tmp_path)[1][0]


def test_no_link_leads_to_a_file_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a b c", encoding="utf-8")
    (tmp_path / "given").mkdir()
    given = folder(tmp_path / "given", TEXT, NOTES)
    (given / "c.ann").touch()
    (given / "c.txt").symlink_to(tmp_path / "secret.txt")
    assert "c.txt is a link that leads out of the folder" in read(given)[1][0]
    (given / "c.txt").unlink()
    (given / "c.txt").symlink_to(given / "b.txt")
    assert len(read(given)[0]) == 4


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(folder(tmp_path, TEXT, NOTES) / "a.ann")
    (tmp_path / "a.txt").touch()
    assert "a.ann is not a regular file" in read(tmp_path)[1][0]


def test_files_have_limits_alone_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brat, "_MOST_FOLDER_BYTES", 100)
    assert "GiB of files" in read(folder(tmp_path, TEXT, NOTES))[1][0]
    os.truncate(tmp_path / "b.txt", 1 << 40)
    assert "b.txt has more than 16 MiB" in read(tmp_path)[1][0]


def test_many_spans_of_a_long_line_are_read_in_a_moment(tmp_path: Path) -> None:
    notes = "".join(f"T{number}\tA {number} {number + 1}\t\n" for number in range(100_000))
    begin = time.process_time()
    (row,), findings = read(folder(tmp_path, "b" * (4 << 20), notes))
    assert len(row.label) == 100_000 and findings == []
    assert time.process_time() - begin < 30


def test_other_folders_are_none_of_brat(tmp_path: Path) -> None:
    assert not is_brat(tmp_path) and not is_brat(tmp_path / "absent")
