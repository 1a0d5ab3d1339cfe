"""Progress on a terminal, in a log, and quiet."""

from __future__ import annotations

import io

import pytest

from edgepack_runtime.util import progress
from edgepack_runtime.util.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_has_one_updated_line(clock: list[float]) -> None:
    out = Terminal()
    bar = Progress("rows", 1000, stream=out)
    bar.update(0, 0, 0)
    for seconds, rows, done in ((0.1, 1, 10), (2.0, 50, 500), (2.1, 60, 600), (4.0, 80, 1000)):
        clock[0] = 100 + seconds
        bar.update(rows, 0, done)
    bar.close()
    lines = out.getvalue().split("\r")
    assert lines[1:] == [
        "[##########..........]  50%  50 rows  25.0/s  0:02 left",
        "[####################] 100%  80 rows  20.0/s  0:00 left\n",
    ]


def test_a_log_gets_a_line_every_ten_seconds(clock: list[float]) -> None:
    out = io.StringIO()
    bar = Progress("rows", None, stream=out)
    for seconds in range(31):
        clock[0] = 100.0 + seconds
        bar.update(seconds * 2, 0, seconds)
    bar.close()
    assert out.getvalue() == "20 rows  2.0/s\n40 rows  2.0/s\n60 rows  2.0/s\n"


def test_the_rate_excludes_an_earlier_run(clock: list[float]) -> None:
    out = Terminal()
    bar = Progress("rows", 10_000, stream=out)
    bar.update(901, 900, 5000)
    clock[0] = 110.0
    bar.update(1000, 900, 5500)
    assert out.getvalue() == "\r[###########.........]  55%  1000 rows  10.0/s  1:30 left"
    clock[0] = 120.0
    bar.update(1100, 900, 5501)
    assert "0:50" not in out.getvalue() and "3:00:00" not in out.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3600, "1:00:00"), (-5, "0:00")])
def test_clock(seconds: float, text: str) -> None:
    assert progress._clock(seconds) == text


def test_quiet_is_quiet(clock: list[float]) -> None:
    for out in (Terminal(), io.StringIO()):
        bar = Progress("rows", 10, stream=out, quiet=True)
        for step in range(5):
            clock[0] += 100
            bar.update(step, 0, step)
        bar.close()
        assert out.getvalue() == ""
