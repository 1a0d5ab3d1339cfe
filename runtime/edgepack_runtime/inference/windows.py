"""Overlapping windows over the tokens of a long text, and the window that decides each token.

Windows have the same length, overlap by at least a quarter of it, and are spread evenly over the text. Each token
belongs to exactly one window: the one with the nearest middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, NamedTuple, Sequence, Tuple

if TYPE_CHECKING:
    from edgepack_runtime.inference.tokenizer import ErnieTokenizer  # slow to import, and every verb imports this

TRUNCATE, WINDOWS = LONG_TEXTS = ("truncate", "windows")  # handling of texts with more tokens than the model reads
ALL_TOKENS = 2**53  # no text has more
_OVERLAP = 4  # minimum overlap: length / 4
_SPECIAL = 2  # [CLS] and [SEP]
_NOWHERE = (0, 0)


class Window(NamedTuple):
    """Tokens `start` to `start` + length of a text; `first` to `after` (exclusive) of them belong to it."""

    start: int
    first: int
    after: int

    @property
    def own(self) -> int:
        """Number of tokens that belong to it."""
        return self.after - self.first


class PairWindow(NamedTuple):
    """`[CLS] first text [SEP] part of the second text [SEP]`.

    The first `n_first` of the `ids` are of type 0, the others of type 1. `offsets` are characters of the second text,
    (0, 0) for all tokens of the first and special ones.
    """

    ids: List[int]
    n_first: int
    offsets: Sequence[Tuple[int, int]]
    window: Window


def pair_windows(tokenizer: ErnieTokenizer, text: str, pair: str, max_length: int) -> Iterator[PairWindow]:
    """A pair in windows over the second text; the first one is cut to half of `max_length` tokens."""
    [head] = tokenizer.encode([text], max_length // 2)
    [ids], [places] = tokenizer.encode_with_offsets([pair], ALL_TOKENS)
    length = max_length - len(head) - 1
    for window in windows(len(ids) - _SPECIAL, length):
        own = slice(1 + window.start, min(1 + window.start + length, len(ids) - 1))
        offsets = [_NOWHERE] * len(head) + [*places[own], _NOWHERE]
        yield PairWindow([*head, *ids[own], ids[-1]], len(head), offsets, window)


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
