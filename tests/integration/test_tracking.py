"""Figures of a training that other tools read: TensorBoard's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import scalars, the_file
from tests.integration import trainings
from tests.integration.conftest import Project
from tests.integration.test_resume import Killed, Killing
from tests.integration.trainings import ONE

from edgepack.artifacts import METRICS_FILE
from edgepack.training.checkpoint import Checkpoint

pytestmark = pytest.mark.integration


def series(folder: Path) -> dict[str, Any]:
    """`metrics.json` of a training without the figures of time."""
    found: dict[str, Any] = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
    assert all(value > 0 for _, value in found.pop("train/tokens_per_second"))
    return found


@pytest.mark.parametrize("stage", ["teacher", "student"])
def test_a_build_leaves_the_series_of_each_training(project: Project, stage: str) -> None:
    (folder,) = (path.parent for path in (project.folder / ".edgepack" / stage).glob(f"*/{METRICS_FILE}"))
    written = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
    assert {name: [step for step, _ in points] for name, points in written.items()} == {
        "train/loss": [10],
        "train/learning_rate": [10],
        "train/tokens_per_second": [10],
        "dev/accuracy": [15],
    }
    artifact = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))
    assert written["dev/accuracy"][0][1] == pytest.approx(artifact["dev_score"]["value"])
    assert scalars(the_file(folder)) == {
        name: [[step, float(np.float32(value))] for step, value in points] for name, points in written.items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    trainings.learn(ONE, folder)
    found = series(folder)
    assert [step for step, _ in found["train/loss"]] == [10] and [step for step, _ in found["dev/accuracy"]][-1] == 18
    return found


@pytest.mark.parametrize("steps", [(7,), (12,), (3, 7, 8)], ids=str)
def test_a_resumed_training_ends_with_the_same_series(
    tmp_path: Path, undisturbed: dict[str, Any], steps: tuple[int, ...]
) -> None:
    for deadly in steps:
        with pytest.raises(Killed):
            trainings.learn(ONE, tmp_path, checkpoint=Killing(tmp_path / "checkpoint", deadly))
        the_file(tmp_path).unlink()  # as the workspace does with an unfinished result
    trainings.learn(ONE, tmp_path, checkpoint=Checkpoint(tmp_path / "checkpoint", seconds=1e9))
    assert series(tmp_path) == undisturbed
    assert {name: len(points) for name, points in scalars(the_file(tmp_path)).items()} == {
        "train/tokens_per_second": 1, **{name: len(points) for name, points in undisturbed.items()}
    }  # fmt: skip
