"""Stage `linear`: the linear model of a build and its scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.stage_context import context_of

from edgepack.artifacts import DataArtifact, LinearArtifact, Split, load, save
from edgepack.errors import StageFailedError
from edgepack.recipe.model import SPLIT_NAMES, Data
from edgepack.stages.data import DataStage
from edgepack.stages.linear import LinearStage
from edgepack.training.linear import FEW_ROWS

GOOD, BAD = ["店很好", "好", "很好很好", "店好"], ["店很差", "差", "很差很差", "店差"]


def data_of(folder: Path, good: list[str], bad: list[str]) -> DataArtifact:
    folder.mkdir(parents=True)
    rows = [*((text, "good") for text in good), *((text, "bad") for text in bad)]
    counts: dict[Split, int] = {}
    for split in SPLIT_NAMES:
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts[split] = len(rows)
    return DataArtifact(folder, ("bad", "good"), counts, ())


@pytest.fixture
def data(tmp_path: Path) -> DataArtifact:
    return data_of(tmp_path / "data", GOOD * 10, BAD * 10)


def made(data: DataArtifact, folder: Path) -> LinearArtifact:
    folder.mkdir()
    rows = DataStage(Data(train="builtin:reviews-zh"))
    return LinearStage(rows).run(context_of({rows: data}), folder)


def test_the_stage_scores_the_file_that_it_wrote(data: DataArtifact, tmp_path: Path) -> None:
    found = made(data, tmp_path / "linear")
    assert (found.test_score.value, found.test_score.n) == (1.0, 80)
    assert found.test_scores["macro_f1"].value == 1.0
    assert found.file_bytes == (found.folder / "linear.json").stat().st_size
    save(found)
    assert load(LinearArtifact, found.folder) == found


def test_rows_that_share_nothing_are_told(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="no model can be fitted") as caught:
        characters = [chr(0x4E00 + number) for number in range(FEW_ROWS)]
        made(data_of(tmp_path / "data", characters[::2], characters[1::2]), tmp_path / "out")
    assert "linear: off" in caught.value.fix
