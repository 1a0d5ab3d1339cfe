"""Signals that arrive where an exception would be lost."""

from __future__ import annotations

import importlib
import select
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack_runtime.util import signals

SWALLOWS = """
import signal
try:
    for _ in range({times}):
        signal.raise_signal(signal.SIGTERM)
except BaseException:
    pass
"""


def swallowing(folder: Path, times: int) -> Callable[[], object]:
    """An import that catches everything, meanwhile the signal comes."""
    (folder / "swallows.py").write_text(SWALLOWS.format(times=times))

    def load() -> object:
        sys.modules.pop("swallows", None)
        return importlib.import_module("swallows")

    return load


def callback() -> None:
    class Seen:
        pass

    seen = Seen()
    kept = weakref.ref(seen, lambda _: signal.raise_signal(signal.SIGTERM))
    del seen
    assert kept() is None


def deleted() -> None:
    class Ends:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    Ends()


def ended(block: Callable[[], Any]) -> object:
    """The exit code of a command that runs `block`, and then works for at most 10 s."""
    with pytest.raises(SystemExit) as caught, signals.raising([signal.SIGTERM], SystemExit) as arrived:
        block()
        select.select([], [], [], 10)
        pytest.fail("it was lost")
    assert arrived
    return caught.value.code


@pytest.mark.parametrize("block", [callback, deleted])
def test_a_signal_in_a_callback_is_raised_after_it(block: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM), sys.unraisablehook
    assert ended(block) == signal.SIGTERM
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM), sys.unraisablehook) == before


def test_a_signal_in_an_import_is_raised_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert ended(swallowing(tmp_path, 1)) == signal.SIGTERM
    assert "swallows" in sys.modules


def test_the_second_signal_is_raised_within_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waits.py").write_text(SWALLOWS.format(times=2).replace("except BaseException", "except ValueError"))
    with pytest.raises(SystemExit), signals.raising([signal.SIGTERM], SystemExit) as arrived:
        importlib.import_module("waits")
    assert len(arrived) == 2


def test_a_second_signal_leaves_nothing_that_raises_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits for the end of an import; the second ends it, and what cleans up is not disturbed."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waits.py").write_text(SWALLOWS.format(times=2).replace("except BaseException", "except ValueError"))
    with signals.raising([signal.SIGTERM, signal.SIGINT], SystemExit):
        with pytest.raises(SystemExit) as caught:
            importlib.import_module("waits")
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert caught.value.code == signal.SIGTERM


def test_other_errors_that_are_lost_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))

    class Fails:
        def __del__(self) -> None:
            raise ValueError

    with signals.raising([signal.SIGTERM], SystemExit) as arrived:
        Fails()
    assert (told, arrived) == ([ValueError], [])
