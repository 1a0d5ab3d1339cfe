"""Which texts a latency gate times: as many as its percentiles need, of every length that has a budget of its own.

How long a text takes is up to its length, nearly: so those that are timed are taken evenly from all lengths. Chance
then decides little about the percentiles, and the order of the golden rows nothing.
"""

from __future__ import annotations

import heapq
import math
import random
from typing import Iterable, List, Mapping, NamedTuple, Sequence

from edgepack_runtime import bench, energy, stats
from edgepack_runtime.gate_limits import Limits
from edgepack_runtime.latency_limits import P95, Percentiles
from edgepack_runtime.texts import Item

WINDOWS = 2
_SEED = 20240229  # the same texts on every device and in every process
_BUDGET_MS = 5000.0  # for all windows together, unless the percentiles need more samples than fit
_MOST_TEXTS = 500
_ENERGY_MS = 20_000.0  # of texts, where energy is gated: eighty spells


class Kind(NamedTuple):
    """Of a text that is timed: its tokens (0 where none are asked for), whether it is one of the usual ones, and which.

    Others are there for the budget of their length alone, so that figures of all texts keep the golden rows' lengths.
    `row` is the same where a text is timed again.
    """

    tokens: int
    usual: bool
    row: int


class TimedText(NamedTuple):
    """A text or pair to time."""

    item: Item
    kind: Kind


def shuffled(texts: Sequence[Item]) -> List[Item]:
    """`texts` in a seeded order."""
    return random.Random(_SEED).sample(list(texts), len(texts))


def choose(drawn: Sequence[Item], limits: Limits, probe_ms: float, tokens: Sequence[int]) -> List[TimedText]:
    """What each window times (`in_order`): up to 500 of `drawn`, evenly from all lengths.

    There are as many as fit into the time budget, at least those that the percentiles need; where the texts are fewer
    they are gone through again. A length with a budget that is seldom among them gets more of its own.

    Args:
        probe_ms: about how long one text takes.
        tokens: of each of `drawn`, as the model reads it; 0 without budgets by length.
    """
    fit = int(_BUDGET_MS / WINDOWS / max(probe_ms, 1e-3))
    count = max(_needed(limits.latency.percentiles, len(drawn)), min(_MOST_TEXTS, fit))
    if limits.energy_mj_per_text is not None and energy.find() is not None:  # enough spells to bound their mean
        count = max(count, math.ceil(_ENERGY_MS / WINDOWS / max(probe_ms, 1e-3)))
    lengths = [len(item) if isinstance(item, str) else sum(map(len, item)) for item in drawn]
    chosen = [(place, True) for place in _evenly(range(len(drawn)), lengths, count)]
    for budget in limits.latency.by_length:
        times = {place: 0 for place, count in enumerate(tokens) if budget.holds(count)}
        for place, _ in chosen:
            if place in times:
                times[place] += 1
        missing = _needed(budget.limits, len(times)) - sum(times.values())
        chosen += [(place, False) for place in _least_often(times, missing)]
    return [TimedText(drawn[place], Kind(tokens[place], usual, place)) for place, usual in chosen]


def in_order(chosen: Sequence[TimedText], window: int) -> List[TimedText]:
    """`chosen` as window number `window` times them, 0 or more: so that no length is timed by itself, and no texts
    follow each other in two windows. What slows a machine down for a while then meets other texts in each.
    """
    return random.Random(_SEED + window).sample(list(chosen), len(chosen))


def _evenly(places: Iterable[int], lengths: Sequence[int], count: int) -> List[int]:
    """`count` of `places`, as many of each length as its share is; where there are fewer, some more than once."""
    ordered = sorted(places, key=lambda place: lengths[place])
    return [ordered[int((number + 0.5) * len(ordered) / count)] for number in range(count)]


def _least_often(times: Mapping[int, int], count: int) -> List[int]:
    """`count` places, each time one of those that were taken least often so far, as `times` tells."""
    queue = [(taken, place) for place, taken in times.items()]
    heapq.heapify(queue)
    found = []
    for _ in range(count if queue else 0):
        taken, place = queue[0]
        found.append(place)
        heapq.heapreplace(queue, (taken + 1, place))
    return found


def _needed(limits: Percentiles, there_are: int) -> int:
    """Samples in a window that bound the rarest percentile asked for, and p95 in any case.

    Of different texts, as far as `there_are`: one that is timed in both windows is one sample of how long texts take.
    """
    fraction = max([P95, *(part for _, part, _ in limits.asked())])
    samples = stats.n_for_percentile(fraction, bench.CONFIDENCE)
    return max(math.ceil(samples / WINDOWS), min(samples, there_are))
