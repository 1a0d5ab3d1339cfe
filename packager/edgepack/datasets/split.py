"""One set of rows -> train, dev and test: stratified by label, and alike texts always on the same side.

Which rows go where depends on the texts and labels alone, not on their order, the machine or a random state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edgepack.datasets.facts import HeldOut, SplitFacts

TRAIN: Final = 0
DEV: Final = 1
TEST: Final = 2
LEFT_OUT: Final = 3
HELD_OUT_SHARE: Final = 0.1  # of the rows of each label, for dev and for test each
_MIN_GROUPS: Final = 3  # a label with fewer different texts cannot be in every split: training needs them most

_Keys = NDArray[np.uint64]


def assign(facts: SplitFacts, held: Iterable[HeldOut], taken: Iterable[SplitFacts] = ()) -> NDArray[np.uint8]:
    """The split of each row, shape (rows,): TRAIN, DEV, TEST or LEFT_OUT.

    Rows whose texts are alike (equal, or equal when normalised where that means something) stay together. Of the rows
    of each label about HELD_OUT_SHARE go to each split in `held`, at least one text where the label has three or more
    and none is a large part of it; the rest is for training.

    Args:
        facts: of all rows.
        held: the splits to take rows for, beside train.
        taken: splits that exist already; what is alike one of their texts is left out.
    """
    # A group for each text, in the order of their digests, which is as good as random.
    keys, first, group, sizes = np.unique(_keys(facts), return_index=True, return_inverse=True, return_counts=True)
    labels = facts.label_ids[first]
    of_group = np.full(len(keys), TRAIN, np.uint8)
    for split in taken:
        of_group[np.isin(keys, _keys(split))] = LEFT_OUT
    codes = [{"dev": DEV, "test": TEST}[name] for name in held]
    by_label = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    for groups in by_label:
        free = groups[of_group[groups] == TRAIN]
        of_group[free] = _divide(sizes[free].tolist(), codes)
    return of_group[group]


def _divide(sizes: list[int], codes: list[int]) -> list[int]:
    """The split of each group of one label, given the rows of each group."""
    if len(sizes) < _MIN_GROUPS:
        return [TRAIN] * len(sizes)
    needed = dict.fromkeys(codes, max(1, round(sum(sizes) * HELD_OUT_SHARE)))
    result = []
    for size in sizes:
        code = max(needed, key=lambda code: needed[code], default=TRAIN)
        # A text that stands more often than a split has room for would fill it alone.
        if size > needed.get(code, 0):
            result.append(TRAIN)
            continue
        needed[code] -= size
        result.append(code)
    return result


def _keys(facts: SplitFacts) -> _Keys:
    """What alike texts share, shape (rows,): the digest of the normalised text, or of the text where that is short."""
    return np.where(facts.normalised != 0, facts.normalised, facts.exact)
