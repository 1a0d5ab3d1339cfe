"""Texts without labels: read from tables and plain files, and never what dev or test holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.artifacts import Row
from edgepack.data.split_stats import SplitFacts, gather_facts
from edgepack.data.unlabelled import TextSet, count, free_texts
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns

HELD = [Row("酒店的房间很大！", "1"), Row("好", "0")]
PAIR = [Row("如何还款", "1", "怎么还款")]


def held(rows: list[Row]) -> TextSet:
    file = Path("test.tsv")
    return TextSet.of_splits([gather_facts(SplitFacts("test", file, FindingLog(file)), enumerate(rows))])


def read(file: Path, content: str, columns: Columns, against: list[Row]) -> tuple[list[Row], list[str]]:
    file.write_text(content, encoding="utf-8")
    log = FindingLog(file)
    kept = list(free_texts(file, columns, held(against)))
    assert count(file, columns, held(against), log, lambda read_bytes: None) == len(kept)
    return kept, [f"{finding.line}: {finding.severity}: {finding.reason}" for finding in log.findings()]


def test_rows_are_known_with_or_without_their_facts() -> None:
    known = TextSet.of_rows(HELD)
    assert [row in known for row in (*HELD, Row("酒店的，房间很大", ()), Row("好！", ()))] == [True, True, True, False]
    assert HELD[0] not in TextSet.of_rows([])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "早餐不错\n\n  太吵，了 \n"),
        ("a.tsv", "id\ttext\n1\t早餐不错\n2\t太吵，了\n"),
        ("a.csv", 'text\n早餐不错\n"太吵，了"\n'),
        ("a.jsonl", '{"text": "早餐不错"}\n{"text": "太吵，了", "label": 3}\n'),
    ],
)
def test_texts_are_read_from_every_form(tmp_path: Path, name: str, content: str) -> None:
    kept, found = read(tmp_path / name, content, Columns(), HELD)
    assert (kept, found) == ([Row("早餐不错", ()), Row("太吵，了", ())], [])


def test_a_column_can_be_named_or_counted(tmp_path: Path) -> None:
    assert read(tmp_path / "a.tsv", "nr\t评论\n1\t好吃\n", Columns(text="评论"), HELD)[0] == [Row("好吃", ())]
    assert read(tmp_path / "a.tsv", "1\t好吃\n", Columns(text="2", label="3"), HELD)[0] == [Row("好吃", ())]
    found = read(tmp_path / "a.tsv", "id\treview\n1\t好吃\n", Columns(), HELD)[1]
    assert found == ["1: error: the column `text` is not in the header, which is `id`, `review`"]


def test_what_dev_or_test_holds_is_left_out_and_counted(tmp_path: Path) -> None:
    texts = ["酒店的房间很大！", " 酒店的房间很大！ ", "酒店的，房间很大", "好", "好！", "别的"]
    kept, found = read(tmp_path / "a.txt", "\n".join(texts), Columns(), HELD)
    # `好！` is too short to be compared but as it is.
    assert kept == [Row("好！", ()), Row("别的", ())]
    assert found == ["None: warning: 4 of 6 texts left out: dev or test holds the same, or nearly"]


def test_pairs_are_compared_as_a_whole(tmp_path: Path) -> None:
    content = "text\ttext_pair\n如何还款\t怎么还款\n如何还款？\t怎么还款？\n怎么还款\t如何还款\n如何还款\t别的\n"
    kept, found = read(tmp_path / "a.tsv", content, Columns(text_pair="text_pair"), PAIR)
    assert kept == [Row("如何还款", (), "别的")]
    assert found == ["None: warning: 3 of 4 texts left out: dev or test holds the same, or nearly"]


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        ("", ["None: error: this file is empty"]),
        ("好\n", ["None: warning: 1 of 1 text left out", "None: error: the file holds no text that can"]),
        ("坏\ufffd\n", ["1: warning: the text holds U+FFFD"]),
    ],
)
def test_a_file_with_errors_or_too_little_text_has_findings(tmp_path: Path, content: str, reasons: list[str]) -> None:
    found = read(tmp_path / "a.txt", content, Columns(), HELD)[1]
    assert len(found) == len(reasons)
    assert all(finding.startswith(reason) for finding, reason in zip(found, reasons, strict=True))
