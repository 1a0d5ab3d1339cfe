"""Where ranks on CPUs wait for each other before they exchange anything, however long one of them takes.

Gloo, which carries what CPUs exchange, gives up after 30 seconds, and Paddle has no setting for it: scoring on one rank
alone, or a checkpoint on a slow disk, may well take longer. So the ranks meet first, at the store that Paddle keeps in
the process of rank 0.
"""

from __future__ import annotations

import time
from typing import Any, Final

from edgepack.errors import StageFailedError

_ARRIVED, _LEFT, _ENDED = "edgepack/arrived", "edgepack/left", "edgepack/ended"
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.001, 0.05  # between two looks: a step may wait for milliseconds or for minutes
LIMIT_SECONDS: Final = 1800.0  # as long as NCCL waits, which carries what GPUs exchange
GONE: Final = "training: another of its processes has ended"
_SEE: Final = "see what the builds on the other machines say, and start the build again on all of them"


class Meeting:
    """Counts who has arrived: one number in the store, which grows by `count` from one meeting to the next.

    Args:
        store: Paddle's `TCPStore`, or anything that adds to numbers by their names and says what they are then.
        count: ranks that meet.
        limit_seconds: to wait for the others.
    """

    def __init__(self, store: Any, count: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._store, self._count, self._limit_seconds = store, count, limit_seconds
        self._due = 0

    def wait(self) -> None:
        """Return when every rank has come as often as this one.

        Raises:
            StageFailedError: when one of them has ended, or does not come.
        """
        self._due += self._count
        self._add(_ARRIVED, 1)
        self._until(_ARRIVED, self._due)

    def leave(self, *, last: bool) -> None:
        """Come no more. `last`: once all others have left, as the process has to that keeps the store."""
        self._add(_LEFT, 1)
        if last:
            self._until(_LEFT, self._count)

    def end(self) -> None:
        """Tell the others that this rank ends with an error."""
        self._add(_ENDED, 1)

    def _until(self, name: str, due: int) -> None:
        started, pause = time.monotonic(), _SHORTEST_SECONDS
        while self._add(name, 0) < due:
            if self._add(_ENDED, 0):
                raise StageFailedError(GONE, why="it ended with an error of its own", fix=_SEE)
            if time.monotonic() - started > self._limit_seconds:
                why = f"one of them did not go on for {self._limit_seconds / 60:g} minutes"
                raise StageFailedError(GONE, why=why, fix=_SEE)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _add(self, name: str, number: int) -> int:
        try:
            return int(self._store.add(name, number))
        except (RuntimeError, ValueError, OSError) as error:  # what Paddle makes of a connection that is lost
            why = str(error).strip().partition("\n")[0]
            raise StageFailedError(GONE, why=why, fix=_SEE) from error
