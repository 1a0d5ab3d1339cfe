"""The data stage: what later stages read is what the recipe asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.progress import SILENT
from edgepack.recipe.model import Data
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


def test_calibration_is_drawn_from_training_rows(tmp_path: Path, section: Data) -> None:
    made = data.run(section, tmp_path, SILENT)
    assert {row.text for row in made.read("calibration")} <= {row.text for row in made.read("train")}
