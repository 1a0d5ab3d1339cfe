"""The data stage: what later stages read is what the recipe asked for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from edgepack import artifacts
from edgepack.console import Console
from edgepack.progress import SILENT
from edgepack.recipe.model import Calibration, Data
from edgepack.stages import data


@pytest.fixture
def section(tmp_path: Path) -> Data:
    """1,000 rows of one label, one of another; both in test."""
    rows = {"train": 1000, "dev": 3, "test": 3}
    for split, count in rows.items():
        lines = [f"{split} {number}\tcommon" for number in range(count)]
        text = "\n".join(["text\tlabel", *lines, f"{split} seldom\trare", ""])
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    files = {split: str(tmp_path / f"{split}.tsv") for split in rows}
    return Data(**files, train_rows=50)


def test_a_sample_keeps_every_label_known(tmp_path: Path, section: Data) -> None:
    made = data.run(section, tmp_path, SILENT)
    assert made.labels == ("common", "rare")
    assert made.rows == {"train": 50, "dev": 4, "test": 4, "calibration": 50}
    assert {row.label for row in made.read("test")} <= set(made.labels)


def test_the_same_seed_draws_the_same_rows(tmp_path: Path, section: Data) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, seed in zip(folders, (0, 0, 1), strict=True):
        folder.mkdir()
        data.run(section.model_copy(update={"seed": seed}), folder, SILENT)
    first, again, other = ((folder / "train.jsonl").read_bytes() for folder in folders)
    assert first == again != other


def test_samples_keep_the_order_of_the_file(tmp_path: Path, section: Data) -> None:
    made = data.run(section, tmp_path, SILENT)
    for split in ("train", "calibration"):
        numbers = [int(row.text.split()[1]) for row in made.read(split) if row.label == "common"]
        assert numbers == sorted(numbers)


def test_the_draw_is_the_same_on_every_machine(tmp_path: Path, section: Data) -> None:
    section = section.model_copy(update={"train_rows": 9, "calibration": Calibration(**{"from": "train", "rows": 8})})
    made = data.run(section, tmp_path, SILENT)
    drawn = [row.text.removeprefix("train ") for row in made.read("train")]
    assert drawn == ["31", "273", "278", "287", "299", "421", "557", "588", "919"]
    assert [row.text.removeprefix("train ") for row in made.read("calibration")] == [*drawn[:7], "919"]


def test_without_a_sample_every_row_is_kept(tmp_path: Path, section: Data) -> None:
    made = data.run(section.model_copy(update={"train_rows": None}), tmp_path, SILENT)
    assert made.rows["train"] == 1001
    assert [row.text for row in made.read("dev")] == ["dev 0", "dev 1", "dev 2", "dev seldom"]


def test_lengths_and_warnings_come_back_with_the_artifact(tmp_path: Path, section: Data) -> None:
    made = data.run(section, tmp_path, SILENT)
    assert "the label `rare` has 1 row in train" in made.warnings[0]
    assert made.token_counts["test"] == {4: 3, 5: 1}  # with [CLS] and [SEP]; `seldom` is two tokens
    artifacts.save(made)
    assert artifacts.load(artifacts.DataArtifact, tmp_path) == made


def test_built_in_data_are_written_like_files(tmp_path: Path) -> None:
    made = data.run(Data(train="builtin:reviews-zh", train_rows=100), tmp_path, SILENT)
    assert made.rows == {"train": 100, "dev": 500, "test": 1000, "calibration": 100}
    assert len(made.read("test")) == sum(made.token_counts["test"].values()) == 1000


def test_many_rows_have_a_bar(tmp_path: Path, section: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "BAR_FROM_ROWS", 1009)
    monkeypatch.setattr(data, "_SAY_EACH", 100)
    said = io.StringIO()
    data.run(section, tmp_path, Console(stdout=io.StringIO(), stderr=said))
    assert "writing, rows: 1009/1009 in " in said.getvalue()


def test_calibration_is_drawn_from_training_rows(tmp_path: Path, section: Data) -> None:
    made = data.run(section, tmp_path, SILENT)
    assert {row.text for row in made.read("calibration")} <= {row.text for row in made.read("train")}
