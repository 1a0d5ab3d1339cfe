"""Overlapping windows over the tokens of a long text, and the window that decides each token.

Windows have the same length, overlap by at least a quarter of it, and are spread evenly over the text. Each token
belongs to exactly one window: the one with the nearest middle.
"""

from __future__ import annotations

from typing import List, NamedTuple

TRUNCATE, WINDOWS = LONG_TEXTS = ("truncate", "windows")  # handling of texts with more tokens than the model reads
_OVERLAP = 4  # minimum overlap: length / 4


class Window(NamedTuple):
    """Tokens `start` to `start` + length of a text; `first` to `after` (exclusive) of them belong to it."""

    start: int
    first: int
    after: int

    @property
    def own(self) -> int:
        """Number of tokens that belong to it."""
        return self.after - self.first


def windows(n: int, length: int) -> List[Window]:
    """The fewest windows for a text of `n` tokens; one if the text is not longer than `length`.

    Args:
        n: number of tokens without special ones.
        length: tokens of a window, at least 1.
    """
    if n <= length:
        return [Window(0, 0, n)]
    step = length - length // _OVERLAP
    last = -(-(n - length) // step)  # windows after the first one
    starts = [number * (n - length) // last for number in range(last + 1)]
    middles = ((starts[number] + starts[number + 1] + length + 1) // 2 for number in range(last))
    edges = [0, *middles, n]
    return [Window(start, edges[number], edges[number + 1]) for number, start in enumerate(starts)]
