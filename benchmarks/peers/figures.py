"""What is made of the measurements: order of turns, spreads, ratios. Nothing here measures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from edgepack_runtime.stats import scoring
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import ACCURACY

CONFIDENCE: Final = 0.95
_T = TypeVar("_T")


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float


def turns(everyone: Sequence[_T], number: int) -> list[_T]:
    """Who works after whom in round `number`: another first every second time, and in between the other way round.

    What a process finds in the caches is what the one before it left there: nobody shall always follow the same.
    """
    first = number // 2 % len(everyone)
    order = [*everyone[first:], *everyone[:first]]
    return order[::-1] if number % 2 else order


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def times_faster(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """How many times as long theirs takes, round by round: the two of a round share what else the machine did.

    Raises:
        ValueError: there are no rounds, or not as many of both.
    """
    return spread([their / our for our, their in zip(ours, theirs, strict=True)])


def accuracy(truths: Sequence[str], answers: Sequence[str]) -> Interval:
    """Of one model, 0 to 1, with its Wilson interval."""
    return scoring.interval(ACCURACY, truths, answers, CONFIDENCE)


def drop_points(truths: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Interval:
    """How many points lower the accuracy of the second model is on the same rows, with a paired interval."""
    return Interval(*(100 * end for end in scoring.drop(ACCURACY, truths, first, second, CONFIDENCE)))


def most_apart(
    ids: Sequence[Sequence[int]],
    logits: Sequence[Sequence[float]],
    other_ids: Sequence[Sequence[int]],
    other_logits: Sequence[Sequence[float]],
) -> tuple[float, int]:
    """The largest difference of a logit over the texts that both cut into the same tokens, and how many those are."""
    apart = [
        max(abs(one - other) for one, other in zip(row, other_row, strict=True))
        for tokens, row, other_tokens, other_row in zip(ids, logits, other_ids, other_logits, strict=True)
        if list(tokens) == list(other_tokens)
    ]
    return max(apart, default=0.0), len(apart)


def labels_of(logits: Sequence[Sequence[float]], labels: Sequence[str]) -> list[str]:
    """The label of the largest number of each row, the first of equals."""
    return [labels[list(row).index(max(row))] for row in logits]
