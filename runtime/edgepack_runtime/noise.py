"""How slow a model surely is on a quiet machine, judged from timings beside which others ran (standard library only).

Noise only adds time: what passes beside it passes. What it added in all is at most what `contention` says, so samples
beyond a limit can be explained by it only as far as that goes. Of every spell for which contention is known, those that
are beyond the limit by least are explained first, which is the most that noise can do; what is left over was slow by
itself. The low end of an interval here is the largest limit that would still fail on those alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import List, NamedTuple, Sequence

from edgepack_runtime import stats

_STEPS = 50  # of a bisection: to the last digit that matters


class Spell(NamedTuple):
    """Timings between two readings of the counters, in ms, and how much of them others can have taken at most."""

    times_ms: Sequence[float]
    lost_ms: float


def percentile_interval(
    spells: Sequence[Spell], fraction: float, confidence: float, design_effect: float = 1.0
) -> stats.Interval:
    """`stats.percentile_interval` of all timings, with a low end that holds for a quiet machine.

    Raises:
        ValueError: there are no timings.
    """
    times = [ms for spell in spells for ms in spell.times_ms]
    interval = stats.percentile_interval(times, fraction, confidence, design_effect)
    if not any(spell.lost_ms > 0 for spell in spells) or interval.low <= 0:
        return interval
    n = len(times)
    rank, _ = stats.interval_ranks(n, fraction, confidence, design_effect)
    sorted_spells = [_Sorted(spell) for spell in spells]
    low, high = 0.0, interval.low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        beyond = sum(spell.surely_beyond(middle) for spell in sorted_spells)
        if n - beyond < rank:  # so few are within it that it would fail
            low = middle
        else:
            high = middle
    return stats.Interval(interval.value, low, interval.high)


class _Sorted:
    """A spell made ready to be asked about many limits."""

    def __init__(self, spell: Spell) -> None:
        self._times: List[float] = sorted(spell.times_ms)
        self._sums: List[float] = [0.0, *accumulate(self._times)]
        self._lost_ms = spell.lost_ms

    def surely_beyond(self, limit_ms: float) -> int:
        """How many would be beyond the limit with nobody beside them."""
        begin = bisect_right(self._times, limit_ms)
        if math.isinf(self._lost_ms):
            return 0
        low, high = begin, len(self._times)  # those before `low` can be explained
        while low < high:
            middle = (low + high + 1) // 2
            if self._sums[middle] - self._sums[begin] - (middle - begin) * limit_ms <= self._lost_ms:
                low = middle
            else:
                high = middle - 1
        return len(self._times) - low
