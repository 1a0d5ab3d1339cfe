"""Means of scores of rows in a known range, and drops between two models on the same rows.

Scores that are all 0 or 1 are proportions and have closed formulas (`intervals.proportion`, `intervals.paired_drop`).
Others use the Bayesian bootstrap over rows (D. B. Rubin, Annals of Statistics 9 (1981) 130-134), with one more row at
each end of the range: the least value for the low end, the greatest for the high end. For proportions this is the exact
interval of Clopper and Pearson, so that equal scores do not look certain.
"""

from __future__ import annotations

import math
import random
from typing import List, Sequence

from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.scoring import resamples_for

_SEED = 20261127  # the same scores give the same interval everywhere


def mean(scores: Sequence[float], confidence: float, most: float = 1.0) -> Interval:
    """Mean of `scores` (0 to `most`, at least one) with its two-sided interval at `confidence` (0 to 1)."""
    if most == 1 and all(score in (0, 1) for score in scores):
        return intervals.proportion(sum(scores), len(scores), confidence)
    return _bootstrap(scores, 0.0, most, confidence)


def drop(first: Sequence[float], second: Sequence[float], confidence: float, most: float = 1.0) -> Interval:
    """Paired drop of the mean from `first` to `second`, both 0 to `most`, with its interval.

    Raises:
        ValueError: there are no scores, or not as many of the one as of the other.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} scores are not pairs")
    differences = [before - after for before, after in zip(first, second)]
    if most == 1 and all(score in (0, 1) for score in (*first, *second)):
        lost, won = differences.count(1), differences.count(-1)
        return intervals.paired_drop(lost, won, len(differences), confidence)
    return _bootstrap(differences, -most, most, confidence)


def _bootstrap(values: Sequence[float], least: float, most: float, confidence: float) -> Interval:
    """Interval of the mean of `values`, which lie between `least` and `most`."""
    source, n = random.Random(_SEED), len(values)
    lows: List[float] = []
    highs: List[float] = []
    for _ in range(resamples_for(confidence)):
        weights = [source.expovariate(1.0) for _ in range(n + 1)]
        weighted, total = math.fsum(map(_product, weights, values)), math.fsum(weights)
        lows.append((weighted + weights[n] * least) / total)
        highs.append((weighted + weights[n] * most) / total)
    tail, value = (1 - confidence) / 2, math.fsum(values) / n
    low, high = intervals.percentile(sorted(lows), tail), intervals.percentile(sorted(highs), 1 - tail)
    return Interval(value, min(low, value), max(high, value))


def _product(weight: float, value: float) -> float:
    return weight * value
