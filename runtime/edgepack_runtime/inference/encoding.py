"""Encoding of items to rows of ids (one row an item, or one a window of a long text), and of logits to answers."""

from __future__ import annotations

import threading
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple, cast

from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.engine.batch import InputBatch
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.inference.combined import Combined
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from edgepack_runtime.inference.windows import (
    ALL_TOKENS,
    LONG_TEXTS,
    TRUNCATE,
    PairWindow,
    Window,
    pair_windows,
    windows,
)
from edgepack_runtime.tasks.task import Offsets, Part, Prediction
from edgepack_runtime.util.texts import Item

_SPECIAL = 2  # [CLS] and [SEP]
_WHOLE = (Window(0, 0, ALL_TOKENS),)  # for items of one row


class EncodedRow(NamedTuple):
    """Ids of one row without padding; the first `n_first` are of type 0, the others of type 1."""

    ids: List[int]
    n_first: int


class Encoded(NamedTuple):
    """The input of the model for one item.

    `rows` has one row for each of `parts`, and none if the linear model answers alone. `offsets` are empty unless the
    task is `per_token`: those of all tokens of the text from [CLS] to [SEP], or if it is `in_second` those of each
    row. `linear` has the logits of the linear model.
    """

    item: Item
    rows: Sequence[EncodedRow]
    parts: Sequence[Window]
    offsets: Sequence[Offsets]
    linear: Optional[List[float]] = None


class Encoding:
    """Pre-processing and post-processing of one model; safe to share between threads.

    Args:
        tokenizer: of the encoder; None if the linear model answers every text alone.
        combined: the linear model beside the encoder; None without one.
        long_texts, max_windows: see `Predictor`.

    Raises:
        UsageError: `long_texts` has another value, or is `windows` for a model that compares pairs.
    """

    def __init__(
        self,
        tokenizer: Optional[ErnieTokenizer],
        config: ModelConfig,
        combined: Optional[Combined],
        long_texts: str,
        max_windows: Optional[int] = None,
    ) -> None:
        if long_texts not in LONG_TEXTS:
            raise UsageError(f"long texts cannot be treated by {long_texts!r}", fix=f"one of {', '.join(LONG_TEXTS)}")
        self._task = config.text_task
        self.in_windows = self._task.in_second or long_texts != TRUNCATE
        if self.in_windows and config.takes_pairs and not self._task.in_second:
            raise UsageError(
                "a text-pair model has no windows",
                why="it compares two whole texts, and answers for parts of them cannot be merged",
                fix=f"leave long pairs to be cut ({TRUNCATE}), or split them as your texts suggest",
            )
        self._tokenizer, self._config, self._combined = tokenizer, config, combined
        self._max_windows = max_windows
        self.cut_texts = 0  # single texts that had more than `max_length` tokens, and questions of half of them, so far
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> ErnieTokenizer:
        """The tokenizer of the encoder.

        Raises:
            BundleInvalidError: there is none.
        """
        if self._tokenizer is None:
            raise BundleInvalidError(
                "a linear model has no tokens",
                why="it reads characters, and this needs a number of tokens",
                fix="remove gates.latency.by_length from the recipe and build the bundle again",
            )
        return self._tokenizer

    def encode(self, items: Sequence[Item]) -> List[Encoded]:
        """`items` in rows of at most `max_length` tokens; those that the linear model answers alone without rows.

        Raises:
            UsageError: a pair was given to a single-text model, or one text to a text-pair model; or a text has more
                than `max_windows`.
        """
        most = ALL_TOKENS if self.in_windows else self._config.max_length + 1  # one more shows that there are more
        if self._combined is None:
            return self._encode(items, most)
        linear = self._combined.logits(self.checked(items))
        alone = self._combined.answers_alone(linear)
        self._combined.count(alone)
        left = [item for item, decided in zip(items, alone) if not decided]
        encoded = iter(self._encode(left, most) if left else ())
        return [
            Encoded(item, (), (), (), logits) if decided else next(encoded)._replace(linear=logits)
            for item, logits, decided in zip(items, linear, alone)
        ]

    def checked(self, items: Sequence[Item]) -> Sequence[Item]:
        """`items`, which are texts or pairs as the task has them.

        Raises:
            UsageError: one is not.
        """
        if self._task.pairs:
            halves(items)
            return items
        return singles(items)

    def cut(self, items: Sequence[Item]) -> List[EncodedRow]:
        """The first row for each of `items`, of at most `max_length` tokens. Raises as `encode`."""
        if self._task.in_second:
            firsts = (next(self._windows(*pair)) for pair in zip(*halves(items)))
            return [EncodedRow(first.ids, first.n_first) for first in firsts]
        return [encoded.rows[0] for encoded in self._encode(items, self._config.max_length)]

    def _encode(self, items: Sequence[Item], most: int) -> List[Encoded]:
        if self._task.in_second:
            return [self._in_pair_windows(item) for item in zip(*halves(items))]
        if self._task.pairs:
            pairs = zip(*self.tokenizer.encode_pairs(*halves(items), self._config.max_length))
            return [Encoded(item, (EncodedRow(*row),), _WHOLE, ()) for item, row in zip(items, pairs)]
        texts = singles(items)
        if self._task.per_token:
            rows, offsets = self.tokenizer.encode_with_offsets(texts, most)
            return [self._in_rows(text, ids, places) for text, ids, places in zip(texts, rows, offsets)]
        return [self._in_rows(text, ids, ()) for text, ids in zip(texts, self.tokenizer.encode(texts, most))]

    def _in_rows(self, text: str, ids: List[int], offsets: Sequence[Tuple[int, int]]) -> Encoded:
        length, n = self._config.max_length - _SPECIAL, len(ids) - _SPECIAL
        if n <= length:
            return Encoded(text, (EncodedRow(ids, len(ids)),), _WHOLE, (offsets,))
        if not self.in_windows:
            with self._lock:
                self.cut_texts += 1
            ids, offsets = [*ids[: length + 1], ids[-1]], [*offsets[: length + 1], *offsets[-1:]]
            return Encoded(text, (EncodedRow(ids, len(ids)),), _WHOLE, (offsets,))
        parts = windows(n, length)
        self._limit(len(parts))
        rows = [[ids[0], *ids[part.start + 1 : part.start + 1 + length], ids[-1]] for part in parts]
        return Encoded(text, [EncodedRow(row, len(row)) for row in rows], parts, (offsets,))

    def _in_pair_windows(self, item: Tuple[str, str]) -> Encoded:
        found = list(self._windows(*item))
        self._limit(len(found))
        half = self._config.max_length // 2
        if found[0].n_first == half and len(self.tokenizer.encode([item[0]], half + 1)[0]) > half:
            with self._lock:
                self.cut_texts += 1
        rows = [EncodedRow(one.ids, one.n_first) for one in found]
        return Encoded(item, rows, [one.window for one in found], [one.offsets for one in found])

    def _windows(self, text: str, pair: str) -> Iterator[PairWindow]:
        return pair_windows(self.tokenizer, text, pair, self._config.max_length)

    def _limit(self, count: int) -> None:
        most = self._max_windows
        if most is not None and count > most:
            raise UsageError(
                f"a text has {count} windows of {self._config.max_length} tokens, and {most} are read",
                fix="give it in parts, or allow more windows (`serve --max-windows`)",
            )

    def batch(self, rows: Sequence[EncodedRow]) -> InputBatch:
        """`rows` as one batch, padded to the longest."""
        length = max((len(row.ids) for row in rows), default=0)
        ids: List[int] = []
        types: List[int] = []
        for row, n_first in rows:
            ids += row
            ids += [self.tokenizer.pad_id] * (length - len(row))
            types += [0] * n_first
            types += [1] * (len(row) - n_first)
            types += [0] * (length - len(row))
        return InputBatch(ids, types, len(rows), length)

    def decide(self, encoded: Encoded, logits: Sequence[List[Any]]) -> Prediction:
        """The answer for an item from the logits of its rows, in their order; see `Task.predict`.

        The linear model reads the whole text, and its logits are added to those of each window.

        Raises:
            StageFailedError: a logit is not a number.
        """
        if encoded.linear is not None and self._combined is not None:
            logits = [self._combined.sum(row, encoded.linear) for row in logits] or [encoded.linear]
        windows_of_item = encoded.parts or _WHOLE
        if self._task.in_second:
            parts = [Part(*found) for found in zip(logits, (one.own for one in windows_of_item), encoded.offsets)]
        elif self._task.per_token:
            parts = [Part(_joined(encoded, logits), 1, encoded.offsets[0])]
        else:
            parts = [Part(row, window.own) for row, window in zip(logits, windows_of_item)]
        return self._task.predict(self._config.labels, parts, encoded.item)

    def combined(self, items: Sequence[Item], logits: Sequence[List[Any]]) -> List[List[Any]]:
        """The logits of `items`, from the encoder's of one row each, with the linear model's if there is one."""
        if self._combined is None:
            return list(logits)
        linear = self._combined.logits(self.checked(items))
        return [self._combined.sum(ours, theirs) for ours, theirs in zip(logits, linear)]


def _joined(encoded: Encoded, logits: Sequence[List[List[float]]]) -> List[List[float]]:
    """Logits of all tokens of an item, with [CLS] and [SEP], each token from its own window."""
    if len(logits) == 1:
        return logits[0]
    found = [logits[0][0]]
    for part, row in zip(encoded.parts, logits):
        found += row[1 + part.first - part.start : 1 + part.after - part.start]
    found.append(logits[-1][-1])
    return found


def singles(items: Sequence[Item]) -> Sequence[str]:
    """Check that all `items` are single texts.

    Raises:
        UsageError: an item is a pair, or not a text.
    """
    for item in items:
        if isinstance(item, tuple):
            raise UsageError("this model takes single texts, not pairs")
        if not isinstance(item, str):
            raise UsageError("a text is a str", why=f"it was given a {type(item).__name__}", fix="decode it first")
    return cast(Sequence[str], items)


def halves(items: Sequence[Item]) -> Tuple[List[str], List[str]]:
    """Check that all `items` are pairs; return first and second texts.

    Raises:
        UsageError: an item is not a pair.
    """
    firsts, seconds = [], []
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not all(isinstance(text, str) for text in item):
            raise UsageError("this model takes pairs of texts", why=f"it was given {item!r:.60}")
        firsts.append(item[0])
        seconds.append(item[1])
    return firsts, seconds
