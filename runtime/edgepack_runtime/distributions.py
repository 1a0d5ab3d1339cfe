"""Shares and quantiles of the distributions that intervals are made of."""

from __future__ import annotations

import math
import statistics
from typing import Callable, Tuple

_MOST_TERMS = 10_000  # of a continued fraction; it takes the square root of as many as there are rows


def normal(confidence: float) -> float:
    """How many standard deviations hold `confidence` (0 to 1) of a normal distribution, half of it on either side.

    Raises:
        ValueError: `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}")
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def beta_share(x: float, a: float, b: float) -> float:
    """How much of the beta distribution of `a` and `b` (positive) lies below `x` (0 to 1).

    The continued fraction of https://dlmf.nist.gov/8.17 (8.17.22), taken from the side on which it converges fast.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    numerator, denominator, value = math.inf, 1.0, 1.0  # Lentz's way of evaluating it, from the front
    for m in range(_MOST_TERMS):
        for term in _beta_terms(m, x, a, b):
            numerator = 1 + term / numerator
            denominator = 1 / (1 + term * denominator)
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-13:
            break
    return math.exp(front) * value / a


def _beta_terms(m: int, x: float, a: float, b: float) -> Tuple[float, float]:
    """The numerators d(2m + 1) and d(2m + 2) of the fraction, in the names of its source."""
    odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    even = (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))
    return odd, even


def log_binomial(n: int, k: int, p: float) -> float:
    """Logarithm of the probability of `k` of `n` where each has the probability `p`."""
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(p) + (n - k) * math.log1p(-p)


def root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls from above 0 to below crosses it, between `low` and `high`; an end if it does not."""
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
