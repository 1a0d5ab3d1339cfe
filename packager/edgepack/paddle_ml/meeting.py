"""Where ranks on CPUs wait for each other before they exchange anything, however long one of them takes.

Gloo, which carries what CPUs exchange, gives up after 30 seconds, and Paddle has no setting for it: scoring on one rank
alone, or a checkpoint on a slow disk, may well take longer. So the ranks meet first, at the store that Paddle keeps in
the process of rank 0. There each also leaves signs of life, so that one that is killed, or whose machine is lost, is
missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from edgepack.errors import StageFailedError
from edgepack.wording import counted

_ARRIVED, _LEFT, _ENDED = "edgepack/arrived", "edgepack/left", "edgepack/ended"
_BEAT: Final = "edgepack/beat/{}"  # of a rank
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.001, 0.05  # between two looks: a step may wait for milliseconds or for minutes
LIMIT_SECONDS: Final = 1800.0  # as long as NCCL waits, which carries what GPUs exchange
BEAT_SECONDS: Final = 3.0  # between two signs of life of a process
SILENCE_SECONDS: Final = 30.0  # without one, after which it counts as gone
GONE: Final = "training: another of its processes has ended"
LOST: Final = (RuntimeError, ValueError, OSError)  # what Paddle makes of a connection that is lost
_SEE: Final = "see what the builds on the other machines say, and start the build again on all of them"


def gone(why: str) -> StageFailedError:
    """What is to be said when the others are not there any more."""
    return StageFailedError(GONE, why=why, fix=_SEE)


def lost(error: Exception) -> StageFailedError:
    """The same of an exchange that one of `LOST` ended."""
    # Paddle puts its own call stack before what went wrong, and hints in brackets behind it.
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("[")]
    return gone(lines[-1] if lines else type(error).__name__)


class _Signs:
    """When a change was last seen in the signs of life of each rank."""

    def __init__(self, count: int) -> None:
        self._seen: list[tuple[int, float] | None] = [None] * count
        self._looked: float | None = None

    def silent(self, now: float, read: Callable[[int], int]) -> int | None:
        """A rank that gave signs and gives none any more; looks at them no more often than they are given."""
        if self._looked is not None and now - self._looked < BEAT_SECONDS:
            return None
        self._looked = now
        for rank, seen in enumerate(self._seen):
            beats = read(rank)
            if seen is None or seen[0] != beats:
                self._seen[rank] = beats, now
            elif beats and now - seen[1] > SILENCE_SECONDS:  # none at all: it has not begun
                return rank
        return None


class Meeting:
    """Counts who has arrived: one number in the store, which grows by `count` from one meeting to the next.

    Args:
        store: Paddle's `TCPStore`, or anything that adds to numbers by their names and says what they are then.
        count: ranks that meet.
        limit_seconds: to wait for the others.
        clock, sleep: seconds that never go back, and what lets them pass.
    """

    def __init__(
        self,
        store: Any,
        count: int,
        limit_seconds: float = LIMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._count, self._limit_seconds, self._clock = store, count, limit_seconds, clock
        self._sleep = sleep
        self._due = 0

    def wait(self) -> None:
        """Return when every rank has come as often as this one.

        Raises:
            StageFailedError: when one of them has ended, or does not come.
        """
        self._due += self._count
        self._add(_ARRIVED, 1)
        started, pause = self._clock(), _SHORTEST_SECONDS
        signs = _Signs(self._count)
        while self._add(_ARRIVED, 0) < self._due:
            self._check(signs, started)
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def leave(self, *, last: bool) -> None:
        """Come no more. `last`: once all others have left, as the process has to that keeps the store."""
        self._add(_LEFT, 1)
        started = self._clock()
        while last and self._add(_LEFT, 0) < self._count and self._clock() - started < SILENCE_SECONDS:
            self._sleep(_LONGEST_SECONDS)

    def end(self) -> None:
        """Tell the others that this rank ends with an error."""
        self._add(_ENDED, 1)

    def _check(self, signs: _Signs, started: float) -> None:
        """Whether there is still something to wait for."""
        if self._add(_ENDED, 0):
            raise gone("it ended with an error of its own")
        if self._clock() - started > self._limit_seconds:
            raise gone(f"one of them did not go on for {counted(self._limit_seconds / 60, 'minute')}")
        silent = signs.silent(self._clock(), lambda rank: self._add(_BEAT.format(rank), 0))
        if silent is not None:
            raise gone(f"process {silent + 1} of {self._count} was killed, or its machine is lost")

    def _add(self, name: str, number: int) -> int:
        try:
            return int(self._store.add(name, number))
        except LOST as error:
            raise lost(error) from error


def keep_beating(store: Any, rank: int) -> None:
    """Give signs of life from now on, in a thread, through a connection that nobody else uses."""

    def beat() -> None:
        try:
            while True:
                store.add(_BEAT.format(rank), 1)
                time.sleep(BEAT_SECONDS)
        except LOST:
            return  # the store is gone, as this process will find when it waits

    threading.Thread(target=beat, name="signs of life", daemon=True).start()
