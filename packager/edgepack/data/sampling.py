"""A seeded sample of a stream whose length is known, in one pass and without holding anything of it."""

from __future__ import annotations

from random import Random


class Draw:
    """Says of one row after the other whether it belongs to a sample of `size` among `rows`; each sample is as likely.

    Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S. The sample depends on the three arguments alone, not
    on the machine, the Python or the process. It keeps the order of the rows.
    """

    def __init__(self, size: int, rows: int, seed: str) -> None:
        self._wanted = min(size, rows)
        self._left = rows
        self._random = Random(seed)

    @property
    def size(self) -> int:
        """Rows still to be drawn."""
        return self._wanted

    def __call__(self) -> bool:
        """Whether the next row is drawn; false for all beyond `rows`."""
        drawn = self._random.random() * self._left < self._wanted
        self._left = max(0, self._left - 1)
        self._wanted -= drawn
        return drawn
