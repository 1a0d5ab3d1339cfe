"""Intervals and verdicts: how far a measured figure can be trusted (standard library only, but for the bootstrap).

Every interval is two-sided at `confidence`; a verdict compares its nearer or farther end with the limit, so a wrong
pass and a wrong fail have each at most half of what is left. A figure whose interval holds the limit is
inconclusive, and the functions named `n_...` say how many samples would decide if the rates stayed as they are.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import distributions

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
RESAMPLES = 2000
_SEED = 20240229  # the same samples give the same interval everywhere
_MOST = 10_000_000  # a number of samples that nobody will collect: `gate_limits.would_decide` names it


class Interval(NamedTuple):
    """A figure with the ends of its confidence interval, in the figure's unit."""

    value: float
    low: float
    high: float


def wilson(successes: float, n: float, confidence: float) -> Interval:
    """Wilson's score interval of a proportion (0 to 1). Source: E. B. Wilson, JASA 22 (1927) 209-212.

    Raises:
        ValueError: n is not positive, or the successes are not 0 to n.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    z = distributions.normal(confidence)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Interval(p, min(max(centre - half, 0.0), p), max(min(centre + half, 1.0), p))


@functools.lru_cache(maxsize=4096)  # many classes have as many rows, and as many of them right
def clopper_pearson(successes: float, n: float, confidence: float) -> Interval:
    """The exact interval of a proportion (0 to 1): neither end misses the truth more often than it may, at any rate.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934) 404-413; the ends are quantiles of beta distributions.
    Between whole numbers of successes it is continued by the same formula. Raises as `wilson`.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    tail, p = (1 - confidence) / 2, successes / n
    low = (
        distributions.root(lambda x: tail - distributions.beta_share(x, successes, n - successes + 1), 0.0, p)
        if successes
        else 0.0
    )
    high = (
        distributions.root(lambda x: 1 - tail - distributions.beta_share(x, successes + 1, n - successes), p, 1.0)
        if successes < n
        else 1.0
    )
    return Interval(p, low, high)


def proportion(successes: float, n: float, confidence: float) -> Interval:
    """Interval of a proportion (0 to 1), on each side as far as the wider of Wilson's and the exact one.

    Wilson's is right on average. Alone it fails a model that is as good as the limit too often: at 95 %, where 2.5 %
    are allowed, in up to 3.8 % of the cases with 500 rows and limits up to 0.97, and in up to 9 % beyond
    (`benchmarks/gate_errors.py`). Raises as `wilson`.
    """
    score, exact = wilson(successes, n, confidence), clopper_pearson(successes, n, confidence)
    return Interval(score.value, min(score.low, exact.low), max(score.high, exact.high))


def proportion_between(successes: float, n: float, to_pass: float, to_fail: float) -> Interval:
    """`proportion` with its low end at the confidence `to_pass` and its high end at `to_fail`. Raises as `wilson`."""
    low, high = proportion(successes, n, to_pass), proportion(successes, n, to_fail)
    return Interval(low.value, low.low, high.high)


def f1_of_share(share: Interval) -> Interval:
    """The F1 of one class, from the share j (0 to 1) of right ones among all that are there or were answered.

    F1 = 2 tp / (2 tp + errors) = 2 j / (1 + j) grows with j, which is a proportion.
    """
    return Interval(*(2 * j / (1 + j) for j in share))


def paired_drop(lost: float, won: float, n: float, confidence: float) -> Interval:
    """How much lower the second of two models scores on the same `n` rows, as a fraction (-1 to 1).

    Args:
        lost: rows that the first model has right and the second wrong.
        won: rows that the second has right and the first wrong.

    The interval reaches as far as the wider of two on each side: Tango's score interval (T. Tango, Statistics in
    Medicine 17 (1998) 891-908) and the adjusted Wald interval (D. G. Bonett, R. M. Price, Journal of Educational
    and Behavioral Statistics 37 (2012) 479-488). With the few discordant rows that quantization leaves, each alone
    misses too often on one side: the second at small one-way drops, the first at the other end.

    Raises:
        ValueError: n is not positive, or more rows are discordant than there are.
    """
    if n <= 0 or lost < 0 or won < 0 or lost + won > n:
        raise ValueError(f"{lost} and {won} discordant rows of {n}")
    z = distributions.normal(confidence)
    drop = (lost - won) / n
    first, second = (lost + 1) / (n + 2), (won + 1) / (n + 2)
    half = z * math.sqrt((first + second - (first - second) ** 2) / (n + 2))
    low = min(first - second - half, distributions.root(lambda d: _tango(lost, won, n, d) - z, -1.0, drop))
    high = max(first - second + half, distributions.root(lambda d: _tango(lost, won, n, d) + z, drop, 1.0))
    return Interval(drop, max(low, -1.0), min(high, 1.0))


def _tango(lost: float, won: float, n: float, drop: float) -> float:
    """Tango's score statistic for a true difference of `drop`; it falls as `drop` grows."""
    a = 2 * n
    b = -lost - won + (2 * n - lost + won) * drop
    c = -won * drop * (1 - drop)
    won_rate = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)  # restricted maximum likelihood
    variance = n * (2 * won_rate + drop * (1 - drop))
    distance = lost - won - n * drop
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def bootstrap(
    kinds: Sequence[int],
    figure: Callable[[Mapping[int, int]], float],
    confidence: float,
    resamples: Optional[int] = None,
) -> Interval:
    """Interval of a figure of rows that no formula bounds: on each side the wider of the percentile interval and the
    basic one. Source: A. C. Davison, D. V. Hinkley, Bootstrap Methods and their Application (1997), 5.3 and 5.2.

    The resamples of a figure that comes out too low in small samples, as F1 of few rows does, are lower than the
    sample once more. The percentile interval takes that for the truth, and fails too many; the basic one is its
    reflection in the figure, [2 t - high, 2 t - low], which makes up for it, and alone would pass too many.

    Args:
        kinds: of each row, a number that says all that `figure` needs to know about it. Rows of one kind are counted
            and not gone through again, so the fewer kinds there are, the faster this is, however many rows.
        figure: of how many rows there are of each kind; kinds without rows are left out. The figure may be the
            difference of two models where a kind says what both made of the row: then the interval is a paired one.
        resamples: how often as many rows as there are, are drawn with replacement; None is `resamples_for`.

    Where no row differs from another, every resample is the sample and the interval has no width: that is no
    knowledge about rows that were not seen. `scoring` puts a wider interval beside this one for that reason.

    Raises:
        ValueError: there are no rows.
    """
    if not kinds:
        raise ValueError("no rows")
    resamples = resamples_for(confidence) if resamples is None else resamples
    rows = Counter(kinds)
    value = figure(rows)
    drawn = sorted(map(figure, _resampled(rows, resamples)))
    tail = (1 - confidence) / 2
    low, high = percentile(drawn, tail), percentile(drawn, 1 - tail)
    return Interval(value, min(low, 2 * value - high, value), max(high, 2 * value - low, value))


def _resampled(rows: Mapping[int, int], resamples: int) -> Iterator[Dict[int, int]]:
    """How many rows of each kind come out where as many as there are, are drawn with replacement.

    That is multinomial, so kinds are drawn and not rows: 20,000 rows of a few kinds take no longer than 200.
    """
    import numpy as np  # here: this module is also read before a release's own packages are on the path

    kinds, counts, n = list(rows), np.array(list(rows.values())), sum(rows.values())
    source = np.random.RandomState(_SEED)
    for _ in range(resamples):
        drawn = source.multinomial(n, counts / n)  # (kinds,)
        yield {kinds[place]: int(drawn[place]) for place in np.flatnonzero(drawn)}


def resamples_for(confidence: float) -> int:
    """How many resamples have ten beyond each end of an interval at `confidence` (0 to 1), and `RESAMPLES` at least.

    With fewer, an end is one of the few outermost resamples, wherever these happen to lie; with none beyond it, it is
    the outermost one whatever the confidence. 2,000 up to 0.99, 20,000 at 0.999, and time grows with them.
    """
    return max(RESAMPLES, math.ceil(round(20 / (1 - confidence), 6)))  # 10 in a tail of half of what is left


def mean_of(parts: Sequence[Interval]) -> Interval:
    """Interval of the mean of independent figures from the intervals of each (MOVER).

    Source: G. Y. Zou, A. Donner, Statistics in Medicine 27 (2008) 1693-1702.

    Raises:
        ValueError: there are no figures.
    """
    if not parts:
        raise ValueError("no figures")
    value = math.fsum(part.value for part in parts) / len(parts)
    below = math.sqrt(math.fsum((part.value - part.low) ** 2 for part in parts)) / len(parts)
    above = math.sqrt(math.fsum((part.high - part.value) ** 2 for part in parts)) / len(parts)
    return Interval(value, value - below, value + above)


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The smallest value with at least `fraction` of the sorted samples at or below it (nearest rank)."""
    return ordered[max(math.ceil(fraction * len(ordered) - 1e-9), 1) - 1]


def percentile_interval(samples: Sequence[float], fraction: float, confidence: float) -> Interval:
    """Distribution-free interval of a percentile, from order statistics; its ends are samples.

    The number of samples below the true percentile is binomial(n, fraction). An end that the samples are too few to
    bound is infinite (low: 0). Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd edition (2003), 7.1.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    low, high = _ranks(len(ordered), fraction, (1 - confidence) / 2)
    return Interval(
        percentile(ordered, fraction),
        ordered[low - 1] if low >= 1 else 0.0,
        ordered[high - 1] if high <= len(ordered) else math.inf,
    )


def _ranks(n: int, fraction: float, tail: float) -> Tuple[int, int]:
    """Ranks from 1: the largest r with P(X < r) <= tail and the smallest s with P(X >= s) <= tail, X binomial.

    0 and n + 1 stand for "no sample does".
    """
    low, high = 0, n + 1
    below = 0.0
    for k in range(n + 1):  # below = P(X <= k - 1) at the top of the loop
        if below <= tail:
            low = k
        if 1 - below <= tail:
            return low, k
        below += math.exp(distributions.log_binomial(n, k, fraction))
    return low, high


def n_for_percentile(fraction: float, confidence: float) -> int:
    """Fewest samples that bound a percentile from above at `confidence` (two-sided) with one of them beyond it.

    One allowed exceedance is the rule of MLPerf Inference's early stopping: 130 for p95 at 98 % here, since MLPerf's
    99 % is one-sided.
    """
    tail = (1 - confidence) / 2
    n = 2
    # With one sample beyond it, the percentile lies above the second largest when at least n - 1 samples are below it.
    while fraction**n + n * (1 - fraction) * fraction ** (n - 1) > tail:
        n += 1
    return n


def verdict_at_least(interval: Interval, limit: float) -> str:
    """Pass when even the low end reaches `limit`; fail when not even the high end does."""
    if interval.low >= limit:
        return PASS
    return FAIL if interval.high < limit else INCONCLUSIVE


def verdict_at_most(interval: Interval, limit: float) -> str:
    """Pass when even the high end keeps to `limit`; fail when not even the low end does."""
    if interval.high <= limit:
        return PASS
    return FAIL if interval.low > limit else INCONCLUSIVE


def overall(verdicts: Sequence[str]) -> str:
    """Fail if any failed, else inconclusive if any is, else pass."""
    return FAIL if FAIL in verdicts else INCONCLUSIVE if INCONCLUSIVE in verdicts else PASS


def n_for_proportion(
    observed: float, limit: float, confidence: float, *, to_fail: Optional[float] = None, beyond: int = 0
) -> Optional[int]:
    """Samples with which `observed` would be told from `limit` (both 0 to 1); None when not even `_MOST` would do.

    Args:
        to_fail: the confidence of the high end, where it is another (`proportion_between`).
        beyond: as many did not do.
    """

    def decides(n: int) -> bool:
        interval = proportion_between(observed * n, n, confidence, confidence if to_fail is None else to_fail)
        return verdict_at_least(interval, limit) != INCONCLUSIVE

    return None if observed == limit else _first(decides, beyond)


def n_for_drop(lost: int, won: int, n: int, limit: float, confidence: float) -> Optional[int]:
    """Rows, more than `n`, with which a drop would be told from `limit`, the discordant share staying as it is; None
    if none would.
    """

    def decides(rows: int) -> bool:
        interval = paired_drop(lost * rows / n, won * rows / n, rows, confidence)
        return verdict_at_most(interval, limit) != INCONCLUSIVE

    return _first(decides, n)


def _first(decides: Callable[[int], bool], beyond: int) -> Optional[int]:
    """The smallest number beyond one that does not decide, if any up to `_MOST` does."""
    low, high = beyond, beyond + 1
    while not decides(high):
        low, high = high, high * 2
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
