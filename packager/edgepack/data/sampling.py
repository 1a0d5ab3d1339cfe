"""Seeded sample of a stream of known length, in one pass and in constant memory."""

from __future__ import annotations

from random import Random


class Sampler:
    """Selection of `size` of `rows` rows, one after the other; all samples are equally likely.

    Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S. The sample depends on the three arguments only, and
    keeps the order of the rows.
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
