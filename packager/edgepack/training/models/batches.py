"""Batches of encoded rows: their order, and the arrays for the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.artifacts import Row
from edgepack.tasks.task import Array, Encoded
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from edgepack_runtime.inference.windows import pair_windows

Int64 = npt.NDArray[np.int64]
_BUCKET_BATCHES: Final = 16  # batches are cut from pools of this many, sorted by length: random enough, little padding
_READ_AHEAD: Final = 4  # batches that are padded and copied to the device while a step runs


@dataclass(frozen=True)
class EncodedRows:
    """Training examples, one entry per row in every list.

    `targets` are those of the task. `soft` are the teacher's logits, with distillation.
    """

    rows: list[Encoded]
    targets: list[Array]
    soft: list[Array] | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Batch:
    """Tensors of B rows, padded to T tokens. `soft` is None without a teacher."""

    ids: Any  # (B, T) int64
    types: Any  # (B, T) int64
    targets: Any
    soft: Any | None

    def part(self, start: int, stop: int) -> Batch:
        """The rows from `start` to `stop`."""
        soft = None if self.soft is None else self.soft[start:stop]
        return Batch(self.ids[start:stop], self.types[start:stop], self.targets[start:stop], soft)


def epoch_order(lengths: Sequence[int], batch_size: int, random: np.random.Generator) -> list[list[int]]:
    """Row indices of the batches of an epoch: shuffled, sorted by length within pools, batches shuffled again.

    `batch_size` is the rows of a step in all processes. A batch is sorted by length, so that the shares of the ranks
    (every n-th row) have similar lengths.
    """
    order = random.permutation(len(lengths))
    pool = batch_size * _BUCKET_BATCHES
    cut: list[list[int]] = []
    for start in range(0, len(order), pool):
        members = sorted(order[start : start + pool].tolist(), key=lambda index: lengths[index])
        cut += [members[at : at + batch_size] for at in range(0, len(members), batch_size)]
    return [cut[index] for index in random.permutation(len(cut))]


def pad(rows: Sequence[Sequence[int]], filler: int = 0) -> Int64:
    """Rows -> (B, T) int64, padded with 0 ([PAD]) to the longest."""
    width = max(len(row) for row in rows)
    padded = np.full((len(rows), width), filler, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def loader(
    examples: EncodedRows, order: list[list[int]], collate: Callable[[list[Array], int], Array]
) -> Iterator[Batch | None]:
    """The batches of `order`, made by a thread while the network computes; None for a batch without rows.

    Args:
        examples: rows to choose from.
        order: indices of the rows of each batch.
        collate: stacks targets or soft labels of a batch, given the T that its tokens are padded to.
    """

    def make(members: list[int]) -> tuple[Array, ...]:
        ids = pad([examples.rows[index].ids for index in members])  # (B, T)
        types = pad([examples.rows[index].types for index in members])  # (B, T)
        made = (ids, types, collate([examples.targets[index] for index in members], ids.shape[1]))
        if examples.soft is None:
            return made
        return (*made, collate([examples.soft[index] for index in members], ids.shape[1]))

    filled = [members for members in order if members]
    made = paddle.io.DataLoader(
        _Indices(len(examples)), batch_sampler=filled, collate_fn=make, num_workers=0, prefetch_factor=_READ_AHEAD
    )
    batches = (Batch(ids, types, targets, soft[0] if soft else None) for ids, types, targets, *soft in made)
    for members in order:
        yield next(batches) if members else None


class _Indices(paddle.io.Dataset):  # type: ignore[misc, unused-ignore]
    """Passes row numbers to `collate_fn`; the rows are in memory."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


def encode(
    tokenizer: ErnieTokenizer, rows: Sequence[Row], max_length: int, *, with_offsets: bool = False
) -> list[Encoded]:
    """Token ids and types of each row with special tokens, truncated to `max_length`; with offsets on request."""
    texts = [row.text for row in rows]
    if with_offsets:
        found = zip(*tokenizer.encode_with_offsets(texts, max_length), strict=True)
        return [Encoded(row_ids, [0] * len(row_ids), tuple(places)) for row_ids, places in found]
    pairs = [row.text_pair for row in rows if row.text_pair is not None]
    if not pairs:
        return [Encoded(row_ids, [0] * len(row_ids)) for row_ids in tokenizer.encode(texts, max_length)]
    encoded, firsts = tokenizer.encode_pairs(texts, pairs, max_length)
    return [
        Encoded(row_ids, [0] * first + [1] * (len(row_ids) - first))
        for row_ids, first in zip(encoded, firsts, strict=True)
    ]


def windows(tokenizer: ErnieTokenizer, row: Row, max_length: int) -> list[Encoded]:
    """A pair of texts in windows over the second, with offsets in it."""
    return [
        Encoded(one.ids, [0] * one.n_first + [1] * (len(one.ids) - one.n_first), tuple(one.offsets))
        for one in pair_windows(tokenizer, row.text, row.text_pair or "", max_length)
    ]
