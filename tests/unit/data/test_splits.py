"""Splits of a recipe: checked in one pass, read anew when they are iterated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgepack.artifacts import Row
from edgepack.data.split_stats import masked
from edgepack.data.splits import load_known, load_splits
from edgepack.errors import RecipeInvalidError, StageFailedError
from edgepack.progress import Task
from edgepack.recipe.model import Data, FolderData, ImportedData
from edgepack_runtime.util.json_levels import MOST_LEVELS


@pytest.fixture
def section(tmp_path: Path) -> Data:
    for split in ("train", "dev", "test"):
        lines = [f"{split} {number}\t{number % 2}" for number in range(20)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]), encoding="utf-8")
    return Data(**{split: str(tmp_path / f"{split}.tsv") for split in ("train", "dev", "test")})


class Listener:
    """A progress that remembers its bars."""

    def __init__(self) -> None:
        self.bars: list[list[int]] = []

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        bar = [total]
        self.bars.append(bar)

        class Bar:
            def advance(self, steps: int = 1, note: str = "") -> None:
                bar.append(steps)

        yield Bar()

    def line(self, text: str) -> None:
        """Not of interest here."""


def test_rows_can_be_iterated_again_and_again(section: Data) -> None:
    splits = load_splits(section)
    assert {name: len(rows) for name, rows in splits.rows.items()} == {"train": 20, "dev": 20, "test": 20}
    assert next(iter(splits.rows["dev"])) == Row("dev 0", "0")
    assert list(splits.rows["dev"]) == list(splits.rows["dev"])
    assert splits.labels["test"] == {"0": 10, "1": 10}
    assert splits.lengths["train"].rows_by_tokens == {5: 20}  # `train` has two tokens, the number has one
    assert splits.warnings == ()


def test_built_in_data_are_known_as_well() -> None:
    splits = load_splits(Data(train="builtin:reviews-zh"))
    assert len(splits.rows["dev"]) == sum(splits.labels["dev"].values()) == len(list(splits.rows["dev"]))
    assert 5 < splits.lengths["train"].percentile(0.5) < 40


def test_errors_come_with_all_findings(section: Data) -> None:
    assert section.dev is not None
    Path(section.dev).write_text("text\tlabel\ntrain 1\t1\n\tx\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError, match=r"(?m)1 error$") as invalid:
        load_splits(section)
    assert [finding.severity for finding in invalid.value.findings] == ["error", "warning"]


@pytest.mark.parametrize("content", ["text\tlabel\na\t0\n", "text\tlabel\n" + "other\t1\n" * 20])
def test_a_file_that_changes_between_two_readings_is_an_error(section: Data, content: str) -> None:
    splits = load_splits(section)
    Path(section.train).write_text(content, encoding="utf-8")
    with pytest.raises(StageFailedError, match="was changed while it was read"):
        list(splits.rows["train"])


def test_large_files_have_a_bar_of_their_size_and_small_ones_none(
    section: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    load_splits(section, listener)
    assert listener.bars == []
    monkeypatch.setattr("edgepack.data.splits.BAR_FROM_BYTES", 1)
    monkeypatch.setattr("edgepack.data.splits._MIB", 100)
    load_splits(section, listener)
    ((total, *steps),) = listener.bars
    size = sum(Path(str(file)).stat().st_size for file in (section.train, section.dev, section.test))
    assert total == sum(steps) == size // 100


def test_rows_that_leak_or_repeat_are_left_out_of_train(tmp_path: Path) -> None:
    rows = {
        "train": ["seen\t0", *(f"train {n}\t{n % 2}" for n in range(40)), "train 1\t1", "only here\tx", "shared\ty"],
        "dev": ["dev 0\t0", "dev 1\t1"],
        "test": ["seen\t0", "test 1\t1", "test 2\tx"],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]), encoding="utf-8")
    section = Data(**{name: str(tmp_path / f"{name}.tsv") for name in rows})
    splits = load_splits(section)
    assert [row.text for row in splits.rows["train"]] == [*(f"train {n}" for n in range(40)), "only here", "shared"]
    assert splits.labels["train"] == {"0": 20, "1": 20, "x": 1, "y": 1}
    assert sum("left out" in finding.reason for finding in splits.warnings) == 2
    with pytest.raises(RecipeInvalidError, match="1 error"):
        load_splits(section.model_copy(update={"leaks": "error"}))
    assert len(load_splits(section.model_copy(update={"leaks": "keep", "repeats": "keep"})).rows["train"]) == 44
    (tmp_path / "dev.tsv").write_text("text\tlabel\nshared\ty\ndev 1\t1\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:  # no row of `y` is left in train
        load_splits(section)
    assert "the label `y` (1 row) is not in the train split" in caught.value.findings[-1].reason


def test_test_rows_of_an_imported_model_have_its_labels(section: Data) -> None:
    splits = load_known(ImportedData(test=section.test), ["0", "1", "2"])
    assert [row.label for row in splits.rows["test"]] == ["0", "1"] * 10
    assert (list(splits.rows), splits.warnings) == (["test"], ())
    assert sum(splits.lengths["test"].rows_by_tokens.values()) == 20
    with pytest.raises(RecipeInvalidError) as caught:
        load_known(ImportedData(test=section.test), ["0", "10"])
    [finding] = caught.value.findings
    both = "the model has `0`, `10`; the rows have `0`, `1`"
    assert (finding.line, finding.reason) == (3, f"the label `1` is none of the model's: {both}")


def test_dev_rows_of_a_trained_folder_are_a_seeded_part_of_test(section: Data) -> None:
    splits = load_known(FolderData(test=section.test), ["0", "1"])
    dev, test = ([row.text for row in splits.rows[name]] for name in ("dev", "test"))
    assert (len(dev), len(test)) == (5, 15)
    assert sorted(dev + test) == sorted(f"test {number}" for number in range(20))
    [warning] = splits.warnings
    assert "5 of 20 test rows choose among forms of the model and set its INT8 ranges, and are not scored" in str(
        warning
    )
    again, other = (load_known(FolderData(test=section.test, seed=seed), ["0", "1"]) for seed in (0, 1))
    assert [row.text for row in again.rows["dev"]] == dev != [row.text for row in other.rows["dev"]]


def test_rows_of_a_trained_folder_that_test_has_are_left_out(section: Data, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\ndev 1\t0\ntest 1\t1\ndev 2\t0\n", encoding="utf-8")
    splits = load_known(FolderData(train=section.train, dev=section.dev, test=section.test), ["0", "1"])
    assert {name: len(rows) for name, rows in splits.rows.items()} == {"train": 20, "dev": 2, "test": 20}
    assert [row.text for row in splits.rows["dev"]] == ["dev 1", "dev 2"]
    [warning] = splits.warnings
    assert "1 of 20 test rows (5.00%) are in dev too; left out of dev" in str(warning)


def test_too_few_test_rows_for_dev_rows_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("text\tlabel\na\t0\nb\t1\nc\t1\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_known(FolderData(test=str(tmp_path / "test.tsv")), ["0", "1"])
    assert "3 test rows are too few to take a quarter of them" in caught.value.findings[0].reason


def test_no_test_rows_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("text\tlabel\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_known(ImportedData(test=str(tmp_path / "test.tsv")), ["0", "1"])
    assert len(caught.value.findings) == 1


@pytest.mark.parametrize("depth", [3, 500, 961, 5000])
def test_a_row_that_is_nested_deeply_moves_no_other_row(tmp_path: Path, depth: int) -> None:
    test = [(f"第{number}位客人说房间很大", "ab"[number % 2]) for number in range(40)]
    for name in ("dev", "test"):
        lines = [json.dumps({"text": text + name * (name == "dev"), "label": label}) for text, label in test]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    nested = f'{{"text": "x", "label": "a", "more": {"[" * depth}{"]" * depth}}}'
    lines = [json.dumps({"text": text, "label": label}) for text, label in test]
    lines += [json.dumps({"text": f"另一句话{number}", "label": "ab"[number % 2]}) for number in range(40)]
    (tmp_path / "train.jsonl").write_text("\n".join([nested, *lines]), encoding="utf-8")
    section = Data(**{name: str(tmp_path / f"{name}.jsonl") for name in ("train", "dev", "test")})
    if depth > MOST_LEVELS:
        with pytest.raises(RecipeInvalidError):
            load_splits(section)
        return
    kept = [row.text for row in load_splits(section).rows["train"]]
    assert not {text for text, _ in test} & set(kept)
    assert len(kept) == 41


def test_a_file_that_loses_rows_after_the_check_is_an_error(tmp_path: Path) -> None:
    rows = [(number, Row(str(number), "a")) for number in range(3)]
    assert [row.text for _, row in masked(tmp_path, rows, [True, False, True])] == ["0", "2"]
    for kept in ([True], [False] * 4):
        with pytest.raises(StageFailedError, match="was changed"):
            list(masked(tmp_path, rows, kept))
