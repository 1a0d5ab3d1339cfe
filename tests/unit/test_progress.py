"""Progress of another process, which may have been taken over."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from edgepack.progress import SILENT, ProgressReader


def test_events_are_read_in_turns(tmp_path: Path) -> None:
    events = tmp_path / "progress.jsonl"
    events.write_bytes(b'{"line":""}\n' * 100)
    with ExitStack() as bars:
        reader = ProgressReader(events, SILENT, bars)
        assert [reader.catch_up(600) for _ in range(3)] == [600, 600, 0]


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b'{"line":""}\n' * 101, "more than 1200 bytes"),
        (b'{"open":["",1]}\n' * 17, "more than 16 bars"),
        (b" " * 2**20, "an event has more than"),
    ],
)
def test_events_are_limited(tmp_path: Path, raw: bytes, what: str) -> None:
    (tmp_path / "progress.jsonl").write_bytes(raw)
    with ExitStack() as bars, pytest.raises(ValueError, match=what):
        ProgressReader(tmp_path / "progress.jsonl", SILENT, bars, 1200).catch_up()


def test_bars_that_were_closed_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_bytes(b'{"open":["",1]}\n{"close":true}\n' * 20)
    with ExitStack() as bars:
        reader = ProgressReader(tmp_path / "progress.jsonl", SILENT, bars)
        assert reader.catch_up() > 0
        assert not reader._open
