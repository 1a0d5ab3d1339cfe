"""Where ranks on CPUs wait for each other before they exchange anything, however long one of them takes.

Gloo, which carries what CPUs exchange, gives up after 30 seconds, and Paddle has no setting for it: scoring on one rank
alone, or a checkpoint on a slow disk, may well take longer. So the ranks meet first, at the store that Paddle keeps in
the process of rank 0.
"""

from __future__ import annotations

import time
from typing import Any, Final

from edgepack.errors import StageFailedError

_ARRIVED: Final = "edgepack/arrived"
_ENDED: Final = "edgepack/ended"
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.001, 0.05  # between two looks: a step may wait for milliseconds or for minutes
LIMIT_SECONDS: Final = 1800.0  # as long as NCCL waits, which carries what GPUs exchange


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
            StageFailedError: when one of them says that it ends, or does not come.
        """
        self._due += self._count
        there = self._store.add(_ARRIVED, 1)
        started, pause = time.monotonic(), _SHORTEST_SECONDS
        while there < self._due:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
            there = self._store.add(_ARRIVED, 0)
            if pause == _LONGEST_SECONDS and self._store.add(_ENDED, 0):
                raise StageFailedError("training: another process of it has ended with an error")
            if time.monotonic() - started > self._limit_seconds:
                raise StageFailedError(
                    "training: another process of it does not go on",
                    why=f"it was waited for for {self._limit_seconds / 60:g} minutes",
                    fix="see what the builds on the other machines say, and start the build again on all of them",
                )

    def end(self) -> None:
        """Tell the others that this rank will not come any more."""
        self._store.add(_ENDED, 1)
