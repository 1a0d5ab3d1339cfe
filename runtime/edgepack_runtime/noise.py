"""How slow a model surely is on a quiet machine, judged from timings beside which others ran (standard library only).

Noise only adds time: what passes beside it passes. What it added in all is at most what `contention` says, so samples
beyond a limit can be explained by it only as far as that goes. Those that are beyond the limit by least are explained
first, which is the most that noise can do; what is left over was slow by itself. The low end of an interval here is the
largest limit that would still fail on those alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import List, NamedTuple, Sequence

from edgepack_runtime import stats

_STEPS = 50  # of a bisection: to the last digit that matters


class Spell(NamedTuple):
    """Timings between two looks at the counters, in ms, and how much of them others can have taken at most."""

    times_ms: Sequence[float]
    lost_ms: float


class Stretch(NamedTuple):
    """Spells that follow each other, and how much others can have taken of all of them at most.

    That is less than the sum: counters move in ticks, and what one spell seems to have lost by that the next has not.
    """

    spells: Sequence[Spell]
    lost_ms: float

    @property
    def times_ms(self) -> List[float]:
        """All timings, in their order."""
        return [ms for spell in self.spells for ms in spell.times_ms]


def percentile_interval(
    stretches: Sequence[Stretch], fraction: float, confidence: float, design_effect: float = 1.0
) -> stats.Interval:
    """`stats.percentile_interval` of all timings, with a low end that holds for a quiet machine.

    Raises:
        ValueError: there are no timings.
    """
    times = [ms for stretch in stretches for ms in stretch.times_ms]
    interval = stats.percentile_interval(times, fraction, confidence, design_effect)
    if interval.low <= 0:
        return interval
    rank, _ = stats.interval_ranks(len(times), fraction, confidence, design_effect)
    parts = [_Sorted(stretch) for stretch in stretches]

    def fails(limit_ms: float) -> bool:
        """Whether so few would be within the limit that the percentile is beyond it."""
        return len(times) - sum(part.surely_beyond(limit_ms) for part in parts) < rank

    if all(stretch.lost_ms <= 0 for stretch in stretches):
        return interval
    low, high = 0.0, interval.low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    return stats.Interval(interval.value, low, interval.high)


def cut_down(times_ms: Sequence[float], lost_ms: float) -> List[float]:
    """`times_ms`, in their order, with the longest cut down to one height, so that `lost_ms` less remain in all.

    Of all the ways to take that much away, this one leaves the least to whatever grows faster for longer times.
    """
    heights, over_ms = sorted(times_ms, reverse=True), 0.0
    for count, (height, lower) in enumerate(zip(heights, [*heights[1:], 0.0]), 1):
        over_ms += count * (height - lower)
        if over_ms > lost_ms:
            most = lower + (over_ms - lost_ms) / count
            return [min(ms, most) for ms in times_ms]
    return [0.0] * len(times_ms)


class _Sorted:
    """A stretch made ready to be asked about many limits."""

    def __init__(self, stretch: Stretch) -> None:
        self._lost_ms = stretch.lost_ms
        self._spells = [_SortedSpell(spell) for spell in stretch.spells]

    def surely_beyond(self, limit_ms: float) -> int:
        """How many would be beyond the limit with nobody beside them."""
        beyond = [(spell, spell.within(limit_ms)) for spell in self._spells]
        ends = [spell.explained(begin, limit_ms) for spell, begin in beyond]
        found = sum(len(spell.times_ms) - begin for spell, begin in beyond)
        pairs = list(zip(beyond, ends))
        if math.fsum(spell.excess_ms(begin, end, limit_ms) for (spell, begin), end in pairs) <= self._lost_ms:
            return found - sum(end - begin for (_, begin), end in pairs)
        left_ms = self._lost_ms
        for excess in sorted(ms - limit_ms for (spell, begin), end in pairs for ms in spell.times_ms[begin:end]):
            left_ms -= excess
            if left_ms < 0:
                break
            found -= 1
        return found


class _SortedSpell:
    """A spell with its timings in order and their sums up to each."""

    def __init__(self, spell: Spell) -> None:
        self.times_ms: List[float] = sorted(spell.times_ms)
        self._sums: List[float] = [0.0, *accumulate(self.times_ms)]
        self._lost_ms = spell.lost_ms

    def within(self, limit_ms: float) -> int:
        """How many keep to the limit: the place of the first that does not."""
        return bisect_right(self.times_ms, limit_ms)

    def explained(self, begin: int, limit_ms: float) -> int:
        """The place behind the last that can be explained, of those from `begin`."""
        low, high = begin, len(self.times_ms)
        if math.isinf(self._lost_ms):
            return high
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self.excess_ms(begin, middle, limit_ms) <= self._lost_ms else (low, middle - 1)
            )
        return low

    def excess_ms(self, begin: int, end: int, limit_ms: float) -> float:
        """By how much those from `begin` to before `end` are beyond the limit, together."""
        return self._sums[end] - self._sums[begin] - (end - begin) * limit_ms
