"""What shows when three splits lie side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.artifacts import Row
from edgepack.datasets.check import MAX_LEAKED_SHARE, check_splits
from edgepack.datasets.tables import Table
from edgepack.recipe.findings import Finding

GOLDEN = Path(__file__).parents[1] / "golden" / "splits.txt"


def table(name: str, *rows: str, findings: tuple[Finding, ...] = ()) -> Table:
    """Rows as `label text`, from line 2 on."""
    made = tuple(Row(row.split(" ", 1)[1], row.split(" ", 1)[0]) for row in rows)
    return Table(Path(f"{name}.tsv"), made, tuple(range(2, 2 + len(made))), findings)


def numbered(name: str, count: int) -> Table:
    return table(name, *(f"{index % 2} {name} {index}" for index in range(count)))


def said(findings: list[Finding]) -> list[str]:
    return [f"{finding.place}: {finding.severity}" for finding in findings]


def test_clean_splits_have_no_findings() -> None:
    assert check_splits(numbered("train", 9), numbered("dev", 2), numbered("test", 3)) == []


def test_findings_read_as_written_down() -> None:
    train = table("train", "1 很好", "0 太吵", "1 很好", "0 很好", "2 一般", "1 dev 1")
    dev = table("dev", "1 dev 1", "1 dev 2")
    test = table("test", "1 很好 ", "3 新标签", "3 又一个", "0 dev 2", "0 test 5")
    found = "".join(f"{finding}\n" for finding in check_splits(train, dev, test))
    assert found == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("leaked", "severity"), [(1, "warning"), (2, "warning"), (3, "error")])
@pytest.mark.parametrize("source", ["train", "dev"])
def test_a_leak_into_test_stops_above_the_stated_share(leaked: int, severity: str, source: str) -> None:
    rows = 200
    assert rows * MAX_LEAKED_SHARE == 2
    splits = {"train": numbered("train", 50), "dev": numbered("dev", 50)}
    texts = [row.text for row in splits[source].rows[:leaked]]
    test = table("test", *(f"{i % 2} {texts[i] if i < leaked else f'test {i}'}" for i in range(rows)))
    assert said(check_splits(splits["train"], splits["dev"], test)) == [f"test.tsv:2: {severity}"]


def test_a_leak_into_dev_never_stops() -> None:
    train = numbered("train", 10)
    dev = Table(Path("dev.tsv"), train.rows, train.lines, ())
    assert said(check_splits(train, dev, numbered("test", 4))) == ["dev.tsv:2: warning"]


@pytest.mark.parametrize(("split", "expected"), [("train", "error"), ("dev", "warning"), ("test", "error")])
def test_a_split_of_one_label(split: str, expected: str) -> None:
    splits = {name: numbered(name, 4) for name in ("train", "dev", "test")}
    splits[split] = table(split, f"1 {split} a", f"1 {split} b")
    found = [f for f in check_splits(**splits) if "every row" in f.reason]
    assert said(found) == [f"{split}.tsv: {expected}"]


@pytest.mark.parametrize("rows", [(), ("1 a",)])
def test_a_split_of_fewer_than_two_rows_is_an_error(rows: tuple[str, ...]) -> None:
    found = check_splits(numbered("train", 4), numbered("dev", 4), table("test", *rows))
    assert said(found)[0] == "test.tsv: error"


def test_what_a_broken_file_lacks_is_not_said() -> None:
    """Rows that could not be read are missing: their labels and number cannot be judged."""
    broken = Finding("error", Path("train.tsv"), 3, "the label is empty", "give it one")
    train = table("train", "1 a", findings=(broken,))
    assert check_splits(train, numbered("dev", 4), numbered("test", 4)) == []
