"""Series of a training: in TensorBoard's files while it runs, and in `metrics.json` at its end."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.unit.training.event_files import scalars, the_file

from edgepack.artifacts import METRICS_FILE
from edgepack.training import scalars as module
from edgepack.training.scalars import ScalarWriter


def test_both_files_have_every_value_by_its_step(tmp_path: Path) -> None:
    with closing(ScalarWriter(tmp_path / "new")) as writer:
        writer.add(10, {"train/loss": 0.5, "train/learning_rate": 1e-3})
        writer.add(15, {"dev/accuracy": 0.75})
        writer.add(20, {"train/loss": 0.25, "train/learning_rate": 5e-4})
        writer.finish()
    written = json.loads((tmp_path / "new" / METRICS_FILE).read_text(encoding="utf-8"))
    assert written == {
        "train/loss": [[10, 0.5], [20, 0.25]],
        "train/learning_rate": [[10, 1e-3], [20, 5e-4]],
        "dev/accuracy": [[15, 0.75]],
    }
    for name, points in scalars(the_file(tmp_path / "new")).items():
        assert points == [[step, float(np.float32(value))] for step, value in written.pop(name)]
    assert written == {}


def test_events_are_in_the_file_while_the_training_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(ScalarWriter(tmp_path)) as writer:
        writer.add(10, {"train/loss": 0.5})
        writer.add(20, {"train/loss": 0.25})  # a flush waits for the disk: not for each
        assert scalars(the_file(tmp_path)) == {"train/loss": [[10, 0.5]]}
        monkeypatch.setattr(module, "_FLUSH_SECONDS", 0.0)
        writer.add(30, {"train/loss": 0.125})
        assert scalars(the_file(tmp_path)) == {"train/loss": [[10, 0.5], [20, 0.25], [30, 0.125]]}
    assert not (tmp_path / METRICS_FILE).exists()  # the training did not end


def test_the_series_of_an_interrupted_training_are_written_again(tmp_path: Path) -> None:
    earlier = {"train/loss": [[10, 0.5], [20, 0.25]], "dev/f1": [[15, 0.5]]}
    with closing(ScalarWriter(tmp_path)) as writer:
        writer.restore(earlier)
        writer.add(30, {"train/loss": 0.125})
        writer.finish()
    assert earlier["train/loss"] == [[10, 0.5], [20, 0.25]]
    series = {"train/loss": [[10, 0.5], [20, 0.25], [30, 0.125]], "dev/f1": [[15, 0.5]]}
    assert scalars(the_file(tmp_path)) == json.loads((tmp_path / METRICS_FILE).read_text(encoding="utf-8")) == series


def test_other_ranks_keep_the_series_for_their_checkpoint_alone() -> None:
    writer = ScalarWriter(None)
    writer.add(10, {"train/loss": 0.5})
    writer.finish()
    writer.close()
    assert writer.series == {"train/loss": [[10, 0.5]]}
