"""The linear model of a build: what its stages make, and what the ledger says of the encoder beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack.artifacts import LABELLED, DataArtifact, Gain, LinearArtifact, Split, WideArtifact, load, save
from edgepack.errors import StageFailedError
from edgepack.pipeline.stages import linear, wide
from edgepack.progress import SILENT
from edgepack.results import Build

GOOD, BAD = ["店很好", "好", "很好很好", "店好"], ["店很差", "差", "很差很差", "店差"]


def data_of(folder: Path, good: list[str], bad: list[str]) -> DataArtifact:
    folder.mkdir(parents=True)
    rows = [*((text, "good") for text in good), *((text, "bad") for text in bad)]
    counts: dict[Split, int] = {}
    for split in LABELLED:
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts[split] = len(rows)
    return DataArtifact(folder, ("bad", "good"), counts, ())


@pytest.fixture
def data(tmp_path: Path) -> DataArtifact:
    return data_of(tmp_path / "data", GOOD * 10, BAD * 10)


def made(data: DataArtifact, folder: Path) -> LinearArtifact:
    folder.mkdir()
    return linear.run(data, folder, SILENT)


def test_the_stage_scores_and_times_what_it_wrote(data: DataArtifact, tmp_path: Path) -> None:
    found = made(data, tmp_path / "linear")
    assert (found.test_score.value, found.test_score.n) == (1.0, 80)
    assert found.test_scores["macro_f1"].value == 1.0
    assert found.file_bytes == (found.folder / "linear.json").stat().st_size
    assert 0 < found.p50_ms < 50
    save(found)
    assert load(LinearArtifact, found.folder) == found


def test_rows_that_share_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(StageFailedError, match="no model can be fitted") as caught:
        linear.run(data_of(tmp_path / "data", ["甲"], ["乙"]), tmp_path / "out", SILENT)
    assert "wide: off" in caught.value.fix


def test_the_encoder_is_compared_row_by_row(data: DataArtifact, tmp_path: Path) -> None:
    write_model_folder(tmp_path / "export" / "onnx-float", labels=("bad", "good"))
    exported: Any = SimpleNamespace(folder=tmp_path / "export", shipped_model=SimpleNamespace(folder="onnx-float"))
    found = wide.run(data, made(data, tmp_path / "linear"), exported, tmp_path / "wide", SILENT)
    gain = found.gains["accuracy"]
    assert gain.low <= gain.points <= gain.high and gain.points <= 0
    assert found.gains.keys() >= {"accuracy", "macro_f1"}


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(1.34, 0.21, 2.4, 0.95), "is better than a linear model by 1.3 points (0.2 to 2.4)"),
        (Gain(-2.0, -3.5, -0.5, 0.95), "is worse than a linear model by 2.0 points (0.5 to 3.5)"),
        (Gain(0.4, -0.7, 1.5, 0.95), "is not shown to be better than a linear model: +0.4 points (-0.7 to +1.5)"),
        (Gain(0.0, 0.0, 0.0, 0.95), "is not shown to be better than a linear model: +0.0 points (+0.0 to +0.0)"),
    ],
)
def test_what_is_not_shown_is_not_said(gain: Gain, text: str) -> None:
    assert gain.text == text


def test_the_ledger_begins_with_the_linear_model(data: DataArtifact, built: Build, tmp_path: Path) -> None:
    plain = made(data, tmp_path / "linear")
    compared = WideArtifact(tmp_path, {"accuracy": Gain(1.34, 0.21, 2.4, 0.95), "macro_f1": Gain(0.1, -1.0, 1.0, 0.95)})
    build = replace(built, linear=plain, wide=compared)
    first, *others = build.ledger
    assert (first.stage, first.p50_ms, first.model_mib) == ("linear", plain.p50_ms, round(plain.file_bytes / 2**20, 3))
    assert first.note.endswith("n-grams; the encoder is better than a linear model by 1.3 points (0.2 to 2.4)")
    assert tuple(others) == built.ledger
    assert build.ledger_of(build.deliveries[0]) == built.ledger_of(built.deliveries[0])
    accuracy = built.recipe.gates.accuracy
    assert accuracy is not None
    asked = {"accuracy": accuracy.model_copy(update={"metric": "macro_f1"})}
    gates = built.recipe.gates.model_copy(update=asked)
    in_f1 = replace(build, recipe=built.recipe.model_copy(update={"gates": gates}))
    assert in_f1.ledger[0].score == plain.test_scores["macro_f1"]
    assert "not shown to be better" in in_f1.ledger[0].note
