"""SIGTERM and SIGHUP end a command in order, as Ctrl-C does: what it started ends with it, what it unpacked is removed.

A CI server cancels with SIGTERM, and a terminal that is closed sends SIGHUP. Without a handler the command would be
gone at once, and a gate that it started would go on for minutes on the same cores.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

_NUMBERS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Within the block, have them raise SystemExit with the code that a shell reports of them.

    Yields the list that they will stand in: a library that was just being loaded makes an error of its own of it. One
    that is ignored, as SIGHUP under nohup, stays so. Python lets no other thread than the main one have handlers.
    """
    arrived: list[int] = []

    def end(number: int, frame: FrameType | None) -> NoReturn:
        arrived.append(number)
        raise SystemExit(exit_code(number))

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _NUMBERS if here}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def take_back() -> None:
    """Have them go where Python knows them to go, after a library has taken them for itself.

    Paddle does when it is imported, behind Python's back: its handler prints a trace and ends the process at once.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if handler is not None:  # else it was set by others than Python before we came
                signal.signal(number, handler)


def exit_code(number: int) -> int:
    """143 of SIGTERM, 129 of SIGHUP."""
    return 128 + number
