"""Metrics of answers that are numbers, with confidence intervals: correlations and the mean absolute error.

All have closed formulas. How much a correlation would change with a little more weight on one row, its influence, gives
its standard error (the infinitesimal jackknife: L. A. Jaeckel, Bell Laboratories memorandum 1215 (1972); B. Efron, The
Jackknife, the Bootstrap and Other Resampling Plans (1982), chapter 6). So does the difference of two influences, of
models that answered the same rows. The interval of one correlation r is that of artanh(r), and no narrower than with
the variance 1 / (n - 3) of R. A. Fisher (Metron 1 (1921) 3-32), for ranks (1 + r^2 / 2) / (n - 3) (D. G. Bonett, T. A.
Wright, Psychometrika 65 (2000) 23-28). A mean error, and the mean difference of two, has the interval of Student's t.

One row among many equal ones may have nearly all of the influence, and the rows then tell as little as that one. So
the degrees of freedom are those of the effective number of rows, (sum of d^2)^2 / sum of d^4 of the deviations d (a
third of the rows where these are normal), and each end lies further out by the largest |d| / n: one more such row.

Without variance, as in the same answer to every row, a correlation is 0 here, and certain.
"""

from __future__ import annotations

import functools
import math
from typing import Dict, List, Sequence

from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import MAE, NUMBER_METRICS, PEARSON, SPEARMAN, Pair

_LEAST_ROWS = 10  # fewer tell nothing about a correlation
_LARGEST = 2e9  # difference of two numbers, which are between -1e9 and 1e9 (`tasks.number`)
_CLOSEST = 1 - 1e-9  # artanh(1) is infinite


def values(pairs: Sequence[Pair]) -> Dict[str, float]:
    """Every metric of (truth, answer) pairs, at least one: correlations from -1 to 1, the error in the unit of truths.

    Raises:
        ValueError: there are no pairs.
    """
    if not pairs:
        raise ValueError("no rows")
    truths, answers = zip(*pairs)
    return {
        SPEARMAN: correlation(ranks(truths), ranks(answers)),
        PEARSON: correlation(truths, answers),
        MAE: math.fsum(abs(truth - answer) for truth, answer in pairs) / len(pairs),
    }


def interval(metric: str, truths: Sequence[float], answers: Sequence[float], confidence: float) -> Interval:
    """A metric with its interval; `confidence` is 0 to 1, two-sided.

    Raises:
        ValueError: there are no rows, not as many answers as rows, or no such metric.
    """
    _require(metric, truths, answers)
    if metric == MAE:
        found = _mean([abs(truth - answer) for truth, answer in zip(truths, answers)], confidence)
        return Interval(found.value, max(found.low, 0.0), found.high)
    return _of_correlation(metric, truths, answers, confidence)


def drop(
    metric: str, truths: Sequence[float], first: Sequence[float], second: Sequence[float], confidence: float
) -> Interval:
    """How much worse the answers `second` are than `first`: a lower correlation, or a greater error.

    Arguments and errors as of `interval`.
    """
    _require(metric, truths, first, second)
    if metric == MAE:
        rows = zip(truths, first, second)
        return _mean([abs(truth - ours) - abs(truth - theirs) for truth, theirs, ours in rows], confidence)
    value = _correlation(metric, truths, first) - _correlation(metric, truths, second)
    if len(truths) < _LEAST_ROWS:
        return Interval(value, -2.0, 2.0)
    if len(set(first)) < 2 or len(set(second)) < 2:  # one of them is 0, and certain: the other has its own interval
        one, other = (_of_correlation(metric, truths, answers, confidence) for answers in (first, second))
        return Interval(value, one.low - other.high, one.high - other.low)
    before, after = (influence(metric, truths, answers) for answers in (first, second))
    around = _mean([one - other for one, other in zip(before, after)], confidence)  # influences have the mean 0
    return Interval(value, value + around.low, value + around.high)


def correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's r of two sequences of equal length; 0 if one of them has no variance."""
    n = len(left)
    of_left, of_right = math.fsum(left) / n, math.fsum(right) / n
    x, y = [value - of_left for value in left], [value - of_right for value in right]
    size = math.sqrt(math.fsum(value * value for value in x)) * math.sqrt(math.fsum(value * value for value in y))
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(x, y)) / size)) if size > 0 else 0.0


def ranks(values: Sequence[float]) -> List[float]:
    """The rank of each value from 1; equal values share the mean of theirs. Pearson's r of ranks is Spearman's."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for place in order[start:stop]:
            found[place] = (start + 1 + stop) / 2
        start = stop
    return found


def influence(metric: str, truths: Sequence[float], answers: Sequence[float]) -> List[float]:
    """The derivative of a correlation by the weight of each row, where the weights of n rows have the sum n.

    Of Pearson's it is x y - r (x^2 + y^2) / 2, of standardised x and y. Spearman's is Pearson's of shares: of the
    weight below a value, plus half of that at the value, so a row changes the shares of all rows above it.
    """
    n = len(truths)
    if len(set(truths)) < 2 or len(set(answers)) < 2:
        return [0.0] * n
    if metric == PEARSON:
        x, y = _standardised(truths), _standardised(answers)
        r = math.fsum(a * b for a, b in zip(x, y)) / n
        return [a * b - r * (a * a + b * b) / 2 for a, b in zip(x, y)]
    f, g = ([(rank - 0.5) / n for rank in ranks(values)] for values in (truths, answers))
    joint = _by_weight(f, g, truths, answers)
    own, other = _by_weight(f, f, truths, truths), _by_weight(g, g, answers, answers)
    covariance = math.fsum(a * b for a, b in zip(f, g)) / n - 0.25  # the mean of shares is 1/2
    of_f, of_g = (math.fsum(a * a for a in shares) / n - 0.25 for shares in (f, g))
    size = math.sqrt(of_f * of_g)
    return [(a - covariance / 2 * (b / of_f + c / of_g)) / size for a, b, c in zip(joint, own, other)]


def _by_weight(f: Sequence[float], g: Sequence[float], left: Sequence[float], right: Sequence[float]) -> List[float]:
    """The derivative of the mean of f g by the weight of each row, without its mean; `left` has the shares f."""
    above, other = _mean_above(left, g), _mean_above(right, f)
    found = [a * b + c + d for a, b, c, d in zip(f, g, above, other)]
    mean = math.fsum(found) / len(found)
    return [value - mean for value in found]


def _mean_above(values: Sequence[float], shares: Sequence[float]) -> List[float]:
    """Of each row the sum of the `shares` of rows with greater values, and half of those with its own, divided by n."""
    n = len(values)
    order = sorted(range(n), key=values.__getitem__, reverse=True)
    found, above, start = [0.0] * n, 0.0, 0
    while start < n:
        stop, equal = start, 0.0
        while stop < n and values[order[stop]] == values[order[start]]:
            equal += shares[order[stop]]
            stop += 1
        for place in order[start:stop]:
            found[place] = (above + equal / 2) / n
        above, start = above + equal, stop
    return found


def _standardised(values: Sequence[float]) -> List[float]:
    n, mean = len(values), math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / n)
    return [(value - mean) / deviation for value in values]


@functools.lru_cache(maxsize=64)
def student_t(confidence: float, freedom: int) -> float:
    """The t with `confidence` (0 to 1) between -t and t, for so many degrees of freedom.

    P(|T| > t) is the incomplete beta function of freedom / (freedom + t^2) with freedom / 2 and 1 / 2
    (https://dlmf.nist.gov/8.17).
    """
    x = intervals.root(lambda x: 1 - confidence - intervals.beta_share(x, freedom / 2, 0.5), 0.0, 1.0)
    return math.sqrt(freedom * (1 - x) / x) if x > 0 else math.inf


def _mean(values: Sequence[float], confidence: float) -> Interval:
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return Interval(mean, -_LARGEST, _LARGEST)
    squares = [(value - mean) ** 2 for value in values]
    total = math.fsum(squares)
    if total <= 0:
        return Interval(mean, mean, mean)
    effective = total * total / math.fsum(square * square for square in squares)
    half = student_t(confidence, max(1, round(effective) - 1)) * math.sqrt(total / (n - 1) / n)
    half += math.sqrt(max(squares)) / n
    return Interval(mean, mean - half, mean + half)


def _correlation(metric: str, truths: Sequence[float], answers: Sequence[float]) -> float:
    return correlation(ranks(truths), ranks(answers)) if metric == SPEARMAN else correlation(truths, answers)


def _of_correlation(metric: str, truths: Sequence[float], answers: Sequence[float], confidence: float) -> Interval:
    n, r = len(truths), _correlation(metric, truths, answers)
    if len(set(truths)) < 2 or len(set(answers)) < 2:
        return Interval(0.0, 0.0, 0.0)
    if n < _LEAST_ROWS:
        return Interval(r, -1.0, 1.0)
    of_normal = intervals.normal(confidence) * math.sqrt((1 + r * r / 2 if metric == SPEARMAN else 1.0) / (n - 3))
    inside = max(-_CLOSEST, min(_CLOSEST, r))
    of_rows = _mean(influence(metric, truths, answers), confidence).high / (1 - inside * inside)
    half, middle = max(of_normal, of_rows), math.atanh(inside)
    return Interval(r, min(r, math.tanh(middle - half)), max(r, math.tanh(middle + half)))


def _require(metric: str, truths: Sequence[float], *answers: Sequence[float]) -> None:
    if metric not in NUMBER_METRICS:
        raise ValueError(f"unknown metric {metric!r}")
    if not truths or any(len(one) != len(truths) for one in answers):
        raise ValueError("{} answers for {} rows".format(" and ".join(str(len(one)) for one in answers), len(truths)))
