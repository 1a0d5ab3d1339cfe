"""How long texts that arrive at random take in the long run, from how long the server works on each.

A run of seconds has few busy periods, and the longest of them decides what its percentiles are: to bound p95 by its
latencies alone would take hours where the server is busy 80 % of the time. But how texts arrive is known exactly, a
Poisson process, and what is left to measure is how long the server works on one. From both follows the latency in the
long run. It is that of a queue M/G/1 whose first text after an idle moment may take another time than others: P. D.
Welch, Operations Research 12 (1964) 736-752; where it takes the same, it is the formula of Pollaczek and Khinchine.

The interval is that of a Bayesian bootstrap over the times of work (D. B. Rubin, Annals of Statistics 9 (1981)
130-134), with the weight between two times of work counted to the longer one for the high end and to the shorter one
for the low end. Where no text waits for another, that makes it the interval of order statistics, which is exact
(`stats.percentile_interval`).
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np

from edgepack_runtime import stats
from edgepack_runtime.stats import Interval

RESAMPLES = 1000
_SEED = 20240229
_CELLS = 4096  # of the grid that distributions lie on
_LEAST_MS = 1e-6  # that a text takes, where others may have taken all of it: shares of nothing are not defined
_LEAST = 30  # times of work of one kind; fewer may be too good or too bad, so all of them may stand for it
_TAIL = 16.0  # mean waits of those who wait, that the grid reaches beyond the slowest: exp(-16) is left out
Array = Any  # of float64; the type that numpy has for it needs a newer numpy than devices carry


class Work(NamedTuple):
    """How long the server was at it, in ms, for each text that found it idle (from the arrival on) and each other."""

    idle_ms: Sequence[float]
    busy_ms: Sequence[float]

    @property
    def all_ms(self) -> List[float]:
        """Both."""
        return [*self.idle_ms, *self.busy_ms]


def percentiles(work: Work, rate_per_s: float, fractions: Sequence[float]) -> List[float]:
    """Percentiles (0 to 1) of the latency in the long run, in ms, if `work` is all there is to know; arguments and
    errors as of `intervals`.
    """
    if not work.all_ms:
        raise ValueError("no times of work")
    return _Queue(work, rate_per_s, None).percentiles(None, fractions)


def intervals(
    work: Work, above: Work, below: Work, rate_per_s: float, fractions: Sequence[float], confidence: float
) -> List[Interval]:
    """`percentiles` with their intervals; infinite where the queue would grow.

    Args:
        work: times as they were measured; of these is the value.
        above: as long as they may be in the long run; of these is the high end.
        below: as short as they may be, with nobody else on the machine; of these is the low end.
        rate_per_s: texts that arrive in a second, on average.

    Raises:
        ValueError: there are no times.
    """
    values = percentiles(work, rate_per_s, fractions)
    tail = (1 - confidence) / 2
    lows = _resampled(below, rate_per_s, fractions, upwards=False)
    highs = _resampled(above, rate_per_s, fractions, upwards=True)
    found = []
    for value, low, high in zip(values, lows, highs):
        ends = stats.percentile(sorted(low), tail), stats.percentile(sorted(high), 1 - tail)
        found.append(Interval(value, min(ends[0], value), max(ends[1], value)))
    return found


def _resampled(work: Work, rate_per_s: float, fractions: Sequence[float], *, upwards: bool) -> List[List[float]]:
    """For each percentile what it is in each resample."""
    queue, draw = _Queue(work, rate_per_s, upwards), np.random.RandomState(_SEED)
    drawn = [queue.percentiles(draw, fractions) for _ in range(RESAMPLES)]
    return [list(column) for column in zip(*drawn)]


class _Queue:
    """A queue with these times of work, ready to be weighted again and again.

    Args:
        upwards: whether an end is asked for that is surely not too low, or not too high; None: neither.
    """

    def __init__(self, work: Work, rate_per_s: float, upwards: Optional[bool]) -> None:
        self._rate_per_ms = rate_per_s / 1e3
        stand_ins = (_standing_for(part, work.all_ms, upwards) for part in work)
        idle, busy = (np.maximum(np.asarray(part, dtype=np.float64), _LEAST_MS) for part in stand_ins)
        share = min(self._rate_per_ms * busy.mean(), 0.97)  # resamples may be busier; the longer grid is coarser
        mean_wait_ms = (busy**2).mean() / (2 * busy.mean()) / (1 - share)
        length_ms = 1.5 * max(idle.max(), busy.max()) + _TAIL * mean_wait_ms
        self._edges = np.linspace(0.0, length_ms, _CELLS + 1)  # (cells + 1,)
        self._idle, self._busy = (_Times(part, self._edges, upwards) for part in (idle, busy))

    def percentiles(self, draw: Any, fractions: Sequence[float]) -> List[float]:
        """With each time counting once, or by weights that `draw`, a numpy RandomState, gives them."""
        idle, busy = (kind.transforms(kind.weights(draw)) for kind in (self._idle, self._busy))
        idle_share, busy_share = (self._rate_per_ms * kind.mean_ms for kind in (idle, busy))
        if busy_share >= 1:
            return [math.inf] * len(fractions)
        found_idle = (1 - busy_share) / (1 - busy_share + idle_share)
        waiting = found_idle * idle_share * idle.rest / (1 - busy_share * busy.rest)
        latency = found_idle * idle.time + waiting * busy.time  # (cells / 2 + 1,), transformed
        within = np.cumsum(np.fft.irfft(latency, _CELLS))  # (cells,), the share that is through by each edge
        places = np.minimum(np.searchsorted(within, fractions), _CELLS)
        return [float(self._edges[place]) for place in places]


def _standing_for(part_ms: Sequence[float], all_ms: Sequence[float], upwards: Optional[bool]) -> Sequence[float]:
    """The times of one kind; where they are few, all times if that is the careful side."""
    if not part_ms:
        return all_ms
    if len(part_ms) >= _LEAST or upwards is None:
        return part_ms
    worse = math.fsum(all_ms) / len(all_ms) > math.fsum(part_ms) / len(part_ms)
    return all_ms if worse == upwards else part_ms


class _Transforms(NamedTuple):
    """Of times of work: their mean in ms, and transformed (cells / 2 + 1,), how they and what is left of them when
    somebody arrives are distributed."""

    mean_ms: float
    time: Array
    rest: Array


class _Times:
    """Times of work of one kind on a grid. Each counts to the nearest edge, or to the next one on the careful side."""

    def __init__(self, times_ms: Array, edges: Array, upwards: Optional[bool]) -> None:
        self._upwards = bool(upwards)
        self._times = np.sort(times_ms)  # (n,)
        share = {None: 0.5, True: 0.0, False: 1.0}[upwards]  # of a cell, that an edge stands for beyond itself
        self._ends = (1 - share) * edges[:-1] + share * edges[1:]  # (cells,), where what each edge stands for ends
        self._counts = np.searchsorted(self._times, self._ends, side="right")  # (cells,), times up to there

    def weights(self, draw: Any) -> Array:
        """(n,), n in all: one each without `draw`, else what lies between two times, for the one it counts to."""
        n = len(self._times)
        if draw is None:
            return np.ones(n)
        gaps = draw.standard_exponential(n + 1)  # (n + 1,), below the first, between, above the last
        end = -1 if self._upwards else 0
        weights = (gaps[:-1] if self._upwards else gaps[1:]).copy()
        weights[end] += gaps[end]
        return weights * (n / weights.sum())

    def transforms(self, weights: Array) -> _Transforms:
        """Of the times with these weights."""
        n, work = len(self._times), weights * self._times
        below = np.append(0.0, np.cumsum(weights))[self._counts]  # (cells,), weight of the times up to each end
        done = np.append(0.0, np.cumsum(work))[self._counts]  # (cells,), ms of work of those
        total = work.sum()
        rest = (done + self._ends * (n - below)) / total  # (cells,), share of the work that is less than that from done
        time_shares, rest_shares = (np.diff(share, prepend=0.0) for share in (below / n, rest))
        return _Transforms(total / n, np.fft.rfft(time_shares), np.fft.rfft(rest_shares))
