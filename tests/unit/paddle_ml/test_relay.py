"""What a process that trains says arrives at the build: lines, bars and errors."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.paddle_ml import relay
from edgepack.progress import Task


class Heard:
    """A progress that notes everything it is told, in order."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def line(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        self.said.append((label, total, done))
        try:
            yield _Bar(self.said)
        except BaseException as error:
            self.said.append(type(error).__name__)
            raise
        self.said.append(f"end of {label}")


class _Bar:
    def __init__(self, said: list[object]) -> None:
        self._said = said

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._said.append((steps, note))


def test_lines_and_bars_arrive_in_order(tmp_path: Path) -> None:
    heard, teller = Heard(), relay.Teller(tmp_path)
    with relay.Listener(tmp_path, heard) as listener:
        teller.line("设备 cpu\nand more")
        listener.catch_up()
        assert heard.said == ["设备 cpu\nand more"]
        with teller.task("train", 8, 3) as bar:
            bar.advance(2)
            bar.advance(3, "loss 0.5")
            teller.line("between")
        listener.catch_up()
        listener.catch_up()
    assert heard.said[1] == ("train", 8, 3)
    steps = [told for told in heard.said[2:] if isinstance(told, tuple)]
    assert sum(number for number, _ in steps) == 5
    assert steps[-1][1] == "loss 0.5"
    assert "between" in heard.said
    assert heard.said[-1] == "end of train"
    assert len(heard.said) == 4 + len(steps)


def test_a_line_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    relay.Teller(tmp_path).line("first")
    file = next(tmp_path.iterdir())
    whole = file.read_bytes()
    second = json.dumps({"line": "second"}).encode() + b"\n"
    heard = Heard()
    with relay.Listener(tmp_path, heard) as listener:
        for end in range(len(second) + 1):
            file.write_bytes(whole + second[:end])
            listener.catch_up()
            assert heard.said == ["first", "second"][: 1 + (end == len(second))]


def test_nothing_is_heard_where_nothing_was_said(tmp_path: Path) -> None:
    heard = Heard()
    with relay.Listener(tmp_path, heard) as listener:
        listener.catch_up()
    assert heard.said == []


def test_bars_that_stay_open_end_with_what_ends_the_build(tmp_path: Path) -> None:
    heard, teller = Heard(), relay.Teller(tmp_path)
    with pytest.raises(KeyboardInterrupt), relay.Listener(tmp_path, heard) as listener, teller.task("train", 8):
        listener.catch_up()
        raise KeyboardInterrupt
    assert heard.said == [("train", 8, 0), "KeyboardInterrupt"]


@pytest.mark.parametrize("kind", [StageFailedError, EnvironmentUnfitError])
def test_an_error_keeps_its_class_and_its_words(tmp_path: Path, kind: type[StageFailedError]) -> None:
    relay.write_error(tmp_path, 2, kind("was", why="weil", fix="tu"))
    found = relay.read_error(tmp_path, 2)
    assert type(found) is kind
    assert isinstance(found, kind)
    assert (found.what, found.why, found.fix) == ("was", "weil", "tu")
    assert relay.read_error(tmp_path, 1) is None


def test_what_the_system_refuses_is_told_as_such(tmp_path: Path) -> None:
    relay.write_error(tmp_path, 0, OSError(errno.ENOSPC, "No space left on device", "/full/checkpoint.tmp"))
    found = relay.read_error(tmp_path, 0)
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, "/full/checkpoint.tmp")


def test_an_unexpected_error_is_left_as_words(tmp_path: Path) -> None:
    relay.write_error(tmp_path, 0, ZeroDivisionError("by zero"))
    assert relay.read_error(tmp_path, 0) == "ZeroDivisionError: by zero"
