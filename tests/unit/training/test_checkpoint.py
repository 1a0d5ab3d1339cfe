"""What a checkpoint holds is read back; the rest of a training's resumption needs Paddle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.training.checkpoint import FILE, SECONDS_VARIABLE, Checkpoint, Position, State, interval_seconds

STATE = State(
    Position(
        7,
        2,
        1,
        {"state": {"state": 2**100, "inc": 3}},
        0.75,
        1,
        12.5,
        4,
        {"scale": 32768.0},
        {"train/loss": [[5, 0.5]]},
    ),
    {"encoder/layer.0.w": np.arange(6, dtype=np.float32).reshape(2, 3)},
    {"0/moment1_0": np.zeros(3, np.float32)},
    {"encoder/layer.0.w": np.ones((2, 3), np.float32)},
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "new", seconds=0).write(STATE)
    found = Checkpoint(tmp_path / "new", seconds=0).read()
    assert found is not None
    assert found.position == STATE.position
    for part in ("network", "optimizer", "best"):
        stored, given = getattr(found, part), getattr(STATE, part)
        assert stored.keys() == given.keys()
        assert all(np.array_equal(stored[name], given[name]) for name in given)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]


@pytest.mark.parametrize("place", [0, 100, -30])
def test_a_damaged_one_counts_as_none(tmp_path: Path, place: int) -> None:
    Checkpoint(tmp_path, seconds=0).write(STATE)
    raw = bytearray((tmp_path / FILE).read_bytes())
    raw[place] ^= 0xFF
    (tmp_path / FILE).write_bytes(raw)
    assert Checkpoint(tmp_path, seconds=0).read() is None


def test_the_variable_sets_the_interval_if_it_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seconds in (("", 60.0), ("0", 0.0), (" 2.5 ", 2.5)):
        monkeypatch.setenv(SECONDS_VARIABLE, text)
        assert interval_seconds() == seconds
    for text in ("abc", "-1", "nan", "inf"):
        monkeypatch.setenv(SECONDS_VARIABLE, text)
        with pytest.raises(EnvironmentUnfitError, match=SECONDS_VARIABLE):
            interval_seconds()
