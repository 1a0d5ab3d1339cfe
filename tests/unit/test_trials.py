"""What a smaller model loses on the dev rows, and how much it may."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeModel

from edgepack.artifacts import DataArtifact
from edgepack.export import selection
from edgepack.export.int8_search import Trials
from edgepack.progress import SILENT
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

TEXTS = ("房间很大", "服务不好", "脏", "很吵也脏")


@pytest.fixture
def float_model(tmp_path: Path, make_model: MakeModel) -> Predictor:
    return Predictor(make_model(tmp_path / "float", seed=1))


@pytest.fixture
def data(tmp_path: Path, float_model: Predictor) -> DataArtifact:
    """Four dev rows that the float model answers right."""
    rows = [{"text": text, "label": float_model.predict(text).label} for text in TEXTS]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return DataArtifact(tmp_path, ("0", "1"), {"dev": len(rows)}, ())


def trials(float_model: Predictor, data: DataArtifact, other: Predictor) -> Trials:
    return Trials(float_model, lambda encoder: other, data, SILENT)


def test_a_model_that_answers_alike_loses_nothing(float_model: Predictor, data: DataArtifact) -> None:
    encoder: Any = None
    trial = trials(float_model, data, float_model).trial("the same", encoder)
    assert (trial.method, trial.drop_points) == ("the same", 0.0)
    assert trial.divergence == pytest.approx(0.0, abs=1e-9)


def test_what_another_answers_wrong_is_lost(
    tmp_path: Path, make_model: MakeModel, float_model: Predictor, data: DataArtifact
) -> None:
    other = Predictor(make_model(tmp_path / "other", seed=2))
    wrong = sum(other.predict(text).label != float_model.predict(text).label for text in TEXTS)
    assert wrong  # or the lines below could not fail
    encoder: Any = None
    asked = trials(float_model, data, other)
    trial = asked.trial("other", encoder)
    assert trial.drop_points == 100 * wrong / len(TEXTS)
    assert trial.divergence == asked.divergence(encoder) > 0


def test_one_row_may_always_be_lost(float_model: Predictor, data: DataArtifact) -> None:
    asked = trials(float_model, data, float_model)
    assert [asked.may_lose(limit) for limit in (0.0, 0.5, 25.0, 30.0, None)] == [25.0, 25.0, 25.0, 30.0, math.inf]


class Counted:
    """Trials where the float model answers so many of the dev rows right, and another `lost` fewer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edgepack.evaluation.answers", lambda right, *_: right)
        monkeypatch.setattr("edgepack.evaluation.logits", lambda right, rows: ())
        monkeypatch.setattr("edgepack.calibration.divergence", lambda *_, multi_label: 0.0)
        monkeypatch.setattr("edgepack.evaluation.value", lambda task, rows, right, classes: right / len(rows))
        monkeypatch.setattr("edgepack_runtime.device.info.half_flags", lambda: ("made up",))

    def refused(self, rows: int, right: int, lost: int, limit_points: float) -> bool:
        """Whether this is more than may be lost."""

        class Data:
            text_task, task, multi_label = task_by_name(ONE_TEXT), ONE_TEXT, False
            labels = model_labels = ("0", "1")

            def read(self, split: str) -> Sequence[int]:
                return range(rows)

        data: Any = Data()
        float_model: Any = right
        other: Any = right - lost
        encoder: Any = None
        asked = Trials(float_model, lambda encoder: other, data, SILENT)
        trial = asked.trial("float16", encoder)
        return bool(selection.caveats_of_float16(trial, asked.may_lose(limit_points)).refusal)


def test_one_row_may_be_lost_of_any_number_and_two_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for rows in range(1, 5001):
        right = max(2, rows - rows // 8)
        assert not counted.refused(rows, right, 1, 0.0), rows
        assert counted.refused(rows, right, 2, 0.0), rows


def test_what_is_lost_may_be_the_limit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for right in range(5, 1001):
        assert not counted.refused(1000, right, 5, 0.5), right
        assert counted.refused(1000, right, 5, 0.499), right
