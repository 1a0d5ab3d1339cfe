"""Signals that end a command: an exception in the main thread that neither an import nor a callback can lose.

Python runs a signal's handler between any two bytecodes. An exception that it raises there is lost if the code is a
weak reference's callback, a `__del__` or a callback from C, and many modules catch everything while they are imported.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

_AGAIN_S = 0.005
_IMPORT = "<frozen importlib"  # file name of the frames below an import


@contextlib.contextmanager
def raising(numbers: Sequence[int], error: Callable[[int], BaseException]) -> Iterator[List[int]]:
    """Within the block, the signals `numbers` raise `error(number)`. An ignored signal stays ignored.

    During an import it is raised after it, and again where it was lost. The second signal is raised at once.

    Yields:
        The received signals: a library may have turned the exception into its own.

    Raises:
        ValueError: this is not the main thread.
    """
    arrived: List[int] = []
    raised: List[BaseException] = []

    def end(number: int, frame: Optional[FrameType]) -> None:
        arrived.append(number)
        arrive(len(arrived) == 1, frame)

    def again(_: int, frame: Optional[FrameType]) -> None:
        arrive(True, frame)

    def arrive(patient: bool, frame: Optional[FrameType]) -> None:
        if patient and _imports(frame) > outside:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        signal.setitimer(signal.ITIMER_REAL, 0)  # else it would raise again in what cleans up after this
        raised.append(error(arrived[0]))
        raise raised[-1]

    def lost(unraisable: Any) -> None:
        if any(unraisable.exc_value is one for one in raised):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            hook(unraisable)

    hook, outside = sys.unraisablehook, _imports(sys._getframe())
    found = {number: signal.getsignal(number) for number in numbers}
    before: Dict[int, Any] = {number: was for number, was in found.items() if was is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, again)
    sys.unraisablehook = lost
    try:
        yield arrived
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: set outside of Python
        sys.unraisablehook = hook


def exit_code(number: int) -> int:
    """The shell's exit code for a signal: 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


def _imports(frame: Optional[FrameType]) -> int:
    """Number of the frames that import something."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename.startswith(_IMPORT)
        frame = frame.f_back
    return found
