"""What every backend answers with, and how its parts are timed: the standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Took(NamedTuple):
    """Milliseconds of one text, text in to label out."""

    tokenize_ms: float
    run_ms: float  # with the choice of the label


class Model(Protocol):
    """A model that is open, on as many threads as it was opened with."""

    def timed(self, text: str) -> Took:
        """Answer one text by itself."""

    def logits(self, text: str) -> list[float]:
        """One number a label."""

    def ids(self, text: str) -> list[int]:
        """The tokens of the text, special ones included."""


class InParts:
    """A `Model` of a tokenizer and what runs its tokens.

    Args:
        encode: a text as the peer's tokenizer hands it to the peer's model.
        run: what `encode` gave -> one number a label.
        ids: the tokens in what `encode` gave.
    """

    def __init__(
        self, encode: Callable[[str], Any], run: Callable[[Any], Sequence[float]], ids: Callable[[Any], Sequence[int]]
    ) -> None:
        self._encode, self._run, self._ids = encode, run, ids

    def timed(self, text: str) -> Took:
        begin = time.perf_counter()
        encoded = self._encode(text)
        tokenized = time.perf_counter()
        logits = list(self._run(encoded))
        logits.index(max(logits))  # the label
        return Took((tokenized - begin) * 1e3, (time.perf_counter() - tokenized) * 1e3)

    def logits(self, text: str) -> list[float]:
        return [float(value) for value in self._run(self._encode(text))]

    def ids(self, text: str) -> list[int]:
        return [int(value) for value in self._ids(self._encode(text))]
