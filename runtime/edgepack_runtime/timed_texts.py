"""Which texts a latency gate times: as many as its percentiles need, of every length that has a budget of its own."""

from __future__ import annotations

import math
import random
from typing import Callable, List, NamedTuple, Sequence

from edgepack_runtime import bench, energy, stats
from edgepack_runtime.gate_limits import Limits
from edgepack_runtime.latency_limits import P95, Percentiles
from edgepack_runtime.texts import Item

WINDOWS = 2
_SEED = 20240229  # the same texts on every device and in every process
_BUDGET_MS = 5000.0  # for all windows together, unless the percentiles need more samples than fit
_MOST_TEXTS = 500
_ENERGY_MS = 5000.0  # of texts, where energy is gated: twenty spells


class Kind(NamedTuple):
    """Of a text that is timed: its tokens (0 where none are asked for), and whether it is one of the usual ones.

    Others are there for the budget of their length alone, so that figures of all texts keep the golden rows' lengths.
    """

    tokens: int
    usual: bool


class TimedText(NamedTuple):
    """A text or pair to time."""

    item: Item
    kind: Kind


def shuffled(texts: Sequence[Item]) -> List[Item]:
    """`texts` in a seeded order."""
    return random.Random(_SEED).sample(list(texts), len(texts))


def choose(drawn: Sequence[Item], limits: Limits, probe_ms: float, tokens_of: Callable[[Item], int]) -> List[TimedText]:
    """What each window times: up to 500 of `drawn`, in their order.

    There are as many as fit into the time budget, at least those that the percentiles need; where the texts are fewer
    they are gone through again. A length with a budget that is seldom among them gets more of its own.

    Args:
        probe_ms: about how long one text takes.
        tokens_of: tokens of a text as the model reads it; asked only if there are budgets by length.
    """
    fit = int(_BUDGET_MS / WINDOWS / max(probe_ms, 1e-3))
    count = max(_needed(limits.latency.percentiles), min(_MOST_TEXTS, fit))
    if limits.energy_mj_per_text is not None and energy.find() is not None:  # enough spells to bound their median
        count = max(count, math.ceil(_ENERGY_MS / WINDOWS / max(probe_ms, 1e-3)))
    if not limits.latency.by_length:
        return [TimedText(drawn[place % len(drawn)], Kind(0, True)) for place in range(count)]
    tokens = [tokens_of(item) for item in drawn]
    places = range(len(drawn))
    chosen = [(place % len(drawn), True) for place in range(count)]
    for budget in limits.latency.by_length:
        fitting = [place for place in places if budget.holds(tokens[place])]
        missing = _needed(budget.limits) - sum(budget.holds(tokens[place]) for place, _ in chosen)
        chosen += [(fitting[number % len(fitting)], False) for number in range(missing if fitting else 0)]
    if len(chosen) > count:  # so that no length is timed by itself at the end of a window
        random.Random(_SEED).shuffle(chosen)
    return [TimedText(drawn[place], Kind(tokens[place], usual)) for place, usual in chosen]


def _needed(limits: Percentiles) -> int:
    """Samples in a window that bound the rarest percentile asked for, and p95 in any case."""
    fraction = max([P95, *(part for _, part, _ in limits.asked())])
    return math.ceil(stats.n_for_percentile(fraction, bench.CONFIDENCE) / WINDOWS)
