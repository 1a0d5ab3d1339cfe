"""Confidence intervals of measured values, and verdicts against limits.

Every interval is two-sided at `confidence`. A verdict compares one end with the limit, so a wrong pass and a wrong
fail each have a probability of at most (1 - confidence) / 2. If the interval contains the limit, the verdict is
inconclusive. The functions `n_for_...` estimate the sample size that would decide at unchanged rates.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Callable, Final, Literal, NamedTuple, Optional, Sequence, Tuple

Verdict = Literal["pass", "fail", "inconclusive"]
PASS: Final = "pass"
FAIL: Final = "fail"
INCONCLUSIVE: Final = "inconclusive"
CONFIDENCE: Final = 0.95  # of scores, unless the gates set another
_MAX_TERMS = 10_000  # of a continued fraction, which needs about the square root of the number of rows
_MAX_N = 10_000_000  # larger sample sizes are not worth reporting; `gate.accuracy` names this number


def normal(confidence: float) -> float:
    """Number of standard deviations around the mean that contain `confidence` (0 to 1) of a normal distribution.

    Raises:
        ValueError: `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}")
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def beta_share(x: float, a: float, b: float) -> float:
    """Cumulative distribution function of the beta distribution with `a` and `b` (positive) at `x` (0 to 1).

    Source: the continued fraction 8.17.22 of https://dlmf.nist.gov/8.17, from the side on which it converges fast.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    numerator, denominator, value = math.inf, 1.0, 1.0  # Lentz's algorithm
    for m in range(_MAX_TERMS):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))  # d(2m + 1) of the source
        even = (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))  # d(2m + 2)
        for term in (odd, even):
            numerator = 1 + term / numerator
            denominator = 1 / (1 + term * denominator)
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-13:
            break
    return math.exp(front) * value / a


def log_binomial(n: int, k: int, p: float) -> float:
    """Logarithm of the binomial probability of `k` successes in `n` trials with success probability `p`."""
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(p) + (n - k) * math.log1p(-p)


def root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Root of a falling function between `low` and `high`, by bisection; one of the ends if it has none."""
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class Interval(NamedTuple):
    """A value with the ends of its confidence interval, in the value's unit."""

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
    z = normal(confidence)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Interval(p, min(max(centre - half, 0.0), p), max(min(centre + half, 1.0), p))


@functools.lru_cache(maxsize=4096)  # classes often share the same counts
def clopper_pearson(successes: float, n: float, confidence: float) -> Interval:
    """Exact interval of a proportion (0 to 1), which keeps its confidence at every true rate.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934) 404-413; the ends are quantiles of beta distributions,
    which also cover fractional successes. Raises as `wilson`.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    tail, p = (1 - confidence) / 2, successes / n
    low = root(lambda x: tail - beta_share(x, successes, n - successes + 1), 0.0, p) if successes else 0.0
    high = root(lambda x: 1 - tail - beta_share(x, successes + 1, n - successes), p, 1.0) if successes < n else 1.0
    return Interval(p, low, high)


def proportion(successes: float, n: float, confidence: float) -> Interval:
    """Interval of a proportion (0 to 1): on each side the wider of Wilson's and the exact interval.

    Wilson's interval alone too often fails a model that is exactly at the limit: at 95 %, where 2.5 % are allowed, in
    up to 3.8 % of the cases with 500 rows and limits up to 0.97, and in up to 9 % above
    (`benchmarks/gate_errors.py`). Raises as `wilson`.
    """
    score, exact = wilson(successes, n, confidence), clopper_pearson(successes, n, confidence)
    return Interval(score.value, min(score.low, exact.low), max(score.high, exact.high))


def proportion_between(successes: float, n: float, to_pass: float, to_fail: float) -> Interval:
    """`proportion` with its low end at the confidence `to_pass` and its high end at `to_fail`. Raises as `wilson`."""
    low, high = proportion(successes, n, to_pass), proportion(successes, n, to_fail)
    return Interval(low.value, low.low, high.high)


def f1_of_share(share: Interval) -> Interval:
    """F1 of one class from j = tp / (tp + fp + fn), a proportion (0 to 1): F1 = 2 j / (1 + j) grows with j."""
    return Interval(*(2 * j / (1 + j) for j in share))


def paired_drop(lost: float, won: float, n: float, confidence: float) -> Interval:
    """Drop in accuracy from a first to a second model on the same `n` rows, as a fraction (-1 to 1).

    Args:
        lost: rows that the first model has right and the second wrong.
        won: rows that the second has right and the first wrong.

    Tango's score interval. Source: T. Tango, Statistics in Medicine 17 (1998) 891-908.

    Raises:
        ValueError: n is not positive, or more rows are discordant than there are.
    """
    if n <= 0 or lost < 0 or won < 0 or lost + won > n:
        raise ValueError(f"{lost} and {won} discordant rows of {n}")
    z = normal(confidence)
    drop = (lost - won) / n
    low = root(lambda true: _tango(lost, won, n, true) - z, -1.0, drop)
    high = root(lambda true: _tango(lost, won, n, true) + z, drop, 1.0)
    return Interval(drop, low, high)


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


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The smallest value with at least `fraction` of the sorted samples at or below it (nearest rank)."""
    return ordered[max(math.ceil(fraction * len(ordered) - 1e-9), 1) - 1]


def percentile_interval(samples: Sequence[float], fraction: float, confidence: float) -> Interval:
    """Distribution-free interval of a percentile, from order statistics; its ends are samples.

    The number of samples below the true percentile is binomial(n, fraction). With too few samples the low end is 0,
    the high end infinite. Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd edition (2003), 7.1.

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

    0 and n + 1 if there is no such rank.
    """
    low, high = 0, n + 1
    below = 0.0
    for k in range(n + 1):  # below = P(X <= k - 1) at the top of the loop
        if below <= tail:
            low = k
        if 1 - below <= tail:
            return low, k
        below += math.exp(log_binomial(n, k, fraction))
    return low, high


def n_for_percentile(fraction: float, confidence: float) -> int:
    """Fewest samples that bound a percentile from above at `confidence` (two-sided) with one sample beyond it.

    One allowed exceedance is the rule of MLPerf Inference's early stopping: 130 for p95 at 98 % here, since MLPerf's
    99 % is one-sided.
    """
    tail = (1 - confidence) / 2
    n = 2
    # The percentile lies above the second largest sample if at least n - 1 samples are below it.
    while fraction**n + n * (1 - fraction) * fraction ** (n - 1) > tail:
        n += 1
    return n


def verdict_at_least(interval: Interval, limit: float) -> Verdict:
    """Verdict against a minimum: pass if the low end reaches `limit`, fail if the high end does not."""
    if interval.low >= limit:
        return PASS
    return FAIL if interval.high < limit else INCONCLUSIVE


def verdict_at_most(interval: Interval, limit: float) -> Verdict:
    """Verdict against a maximum: pass if the high end is within `limit`, fail if the low end is not."""
    if interval.high <= limit:
        return PASS
    return FAIL if interval.low > limit else INCONCLUSIVE


def overall(verdicts: Sequence[str]) -> Verdict:
    """Fail if any failed, else inconclusive if any is, else pass."""
    return FAIL if FAIL in verdicts else INCONCLUSIVE if INCONCLUSIVE in verdicts else PASS


def n_for_proportion(
    observed: float, limit: float, confidence: float, *, to_fail: Optional[float] = None, beyond: int = 0
) -> Optional[int]:
    """Samples that would decide whether `observed` reaches `limit` (both 0 to 1); None if 10 million would not.

    Args:
        to_fail: confidence of the high end, if it differs (`proportion_between`).
        beyond: number of samples that did not decide.
    """

    def decides(n: int) -> bool:
        interval = proportion_between(observed * n, n, confidence, confidence if to_fail is None else to_fail)
        return verdict_at_least(interval, limit) != INCONCLUSIVE

    return None if observed == limit else first_number(decides, beyond)


def n_for_drop(lost: int, won: int, n: int, limit: float, confidence: float) -> Optional[int]:
    """Rows, more than `n`, that would decide whether a drop exceeds `limit` at an unchanged discordant share.

    None if 10 million rows would not decide.
    """

    def decides(rows: int) -> bool:
        interval = paired_drop(lost * rows / n, won * rows / n, rows, confidence)
        return verdict_at_most(interval, limit) != INCONCLUSIVE

    return first_number(decides, n)


def first_number(decides: Callable[[int], bool], beyond: int) -> Optional[int]:
    """The smallest number above `beyond` that `decides`, as all larger ones do; None if it is above 10 million."""
    low, high = beyond, beyond + 1
    while not decides(high):
        low, high = high, high * 2
        if high > _MAX_N:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
