"""Metrics of a model, and drops between two models, with confidence intervals.

Accuracy has closed formulas (`intervals.proportion`, `intervals.paired_drop`). F1 scores use a percentile bootstrap
over rows, paired if two models saw the same rows. Rows get random weights (D. B. Rubin, Annals of Statistics 9 (1981)
130-134), so errors in the same row stay together.

A bootstrap resamples observed rows only: twenty rows without an error would look certain. So each end counts one more
row of every class: a wrong one for the low end, a right one for the high end. For a proportion this gives the exact
interval of Clopper and Pearson. The added row has as many units (labels or spans) of its class as the row of a
randomly drawn unit, since a misread text costs all its spans.

The value of a macro F1 is the mean over the classes that occur, as in scikit-learn. Its interval is for the mean over
all classes of the model: the F1 of a class without golden rows is unknown, up to the bound that wrong answers of this
class set.
"""

from __future__ import annotations

import math
import operator
import random
from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.stats import intervals, metrics
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import Answer, Tally

RESAMPLES = 2000
_SEED = 20240229  # the same rows give the same interval everywhere
_ALL = ""  # the single class of micro averages; labels are never empty
Groups = Dict[str, Tally]
# Rows with equal tallies, per model: (index of the class, right units, errors).
_Kind = Tuple[Tuple[Tuple[int, int, int], ...], ...]


class Counts(NamedTuple):
    """Two models on `n` rows. `lost`: the second is farther from the truth than the first; `won`: nearer."""

    n: int
    lost: int
    won: int


def count(first: Sequence[float], second: Sequence[float]) -> Counts:
    """Compare the errors of two models row by row.

    Raises:
        ValueError: there are not as many of the one as of the other.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} errors are not pairs")
    lost, won = (sum(map(further, first, second)) for further in (operator.lt, operator.gt))
    return Counts(len(first), lost, won)


def interval(
    metric: str,
    truths: Sequence[Answer],
    answers: Sequence[Answer],
    confidence: float,
    positive: Optional[str] = None,
    classes: Optional[Sequence[str]] = None,
) -> Interval:
    """`metric` (0 to 1) of a model with its interval.

    Args:
        metric: one of `metrics.LABEL_METRICS`.
        truths: the true answers, at least one.
        answers: the model's answers, in the same order.
        confidence: 0 to 1, two-sided.
        positive: the positive label of `f1`; other metrics ignore it.
        classes: the model's classes, for `macro_f1`; other metrics ignore them.

    Raises:
        ValueError: there are no rows, not as many answers as rows, or no such metric, or no classes for `macro_f1`.
    """
    _require_as_many(truths, answers)
    if metric == metrics.ACCURACY:
        return intervals.proportion(sum(map(metrics.same, truths, answers)), len(truths), confidence)
    rows = [(_groups(metric, positive, truth, answer),) for truth, answer in zip(truths, answers)]
    return _bootstrap(rows, _classes(metric, positive, classes), (1,), confidence)


def drop(
    metric: str,
    truths: Sequence[Answer],
    first: Sequence[Answer],
    second: Sequence[Answer],
    confidence: float,
    positive: Optional[str] = None,
    classes: Optional[Sequence[str]] = None,
) -> Interval:
    """Paired drop in `metric` from a first to a second model on the same rows, as a fraction (-1 to 1).

    Arguments and errors as for `interval`. The F1 of a class without rows is unknown for both models.
    """
    _require_as_many(truths, first, second)
    if metric == metrics.ACCURACY:
        counts = count(*([not metrics.same(*pair) for pair in zip(truths, answers)] for answers in (first, second)))
        return intervals.paired_drop(counts.lost, counts.won, counts.n, confidence)
    rows = [
        (_groups(metric, positive, truth, theirs), _groups(metric, positive, truth, ours))
        for truth, theirs, ours in zip(truths, first, second)
    ]
    return _bootstrap(rows, _classes(metric, positive, classes), (1, -1), confidence)


def resamples_for(confidence: float) -> int:
    """Resamples with ten beyond each end of an interval at `confidence` (0 to 1), and at least `RESAMPLES`.

    With fewer, the ends depend on a few extreme resamples. 2,000 up to 0.99, 20,000 at 0.999.
    """
    return max(RESAMPLES, math.ceil(round(20 / (1 - confidence), 6)))


def _classes(metric: str, positive: Optional[str], classes: Optional[Sequence[str]]) -> Sequence[str]:
    """Classes over which `metric` averages, with or without rows."""
    if metric == metrics.MACRO_F1:
        if not classes:
            raise ValueError("macro_f1 needs the classes of the model, and there are none")
        return classes
    return [positive or _ALL] if metric == metrics.F1 else [_ALL]


def _groups(metric: str, positive: Optional[str], truth: Answer, answer: Answer) -> Groups:
    """Tallies of one row by the classes over which `metric` averages, without classes absent from the row."""
    tallies = metrics.row_tallies(truth, answer)
    if metric == metrics.MACRO_F1:
        return tallies
    if metric in (metrics.MICRO_F1, metrics.ENTITY_F1):
        return {_ALL: metrics.pooled(tallies.values())} if tallies else {}
    if metric == metrics.F1:
        return {name: tally for name, tally in tallies.items() if name == positive}
    raise ValueError(f"unknown metric {metric!r}: use one of {', '.join(metrics.LABEL_METRICS)}")


def _bootstrap(
    rows: Sequence[Tuple[Groups, ...]], classes: Iterable[str], signs: Sequence[int], confidence: float
) -> Interval:
    """Interval of the signed sum of the models' mean F1.

    Args:
        rows: the tallies of each row, per model.
        classes: the models' classes; further classes of the rows are added.
        signs: 1 or -1 per model.
        confidence: 0 to 1, two-sided.
    """
    names = sorted({*classes, *(name for row in rows for groups in row for name in groups)})
    places = {name: place for place, name in enumerate(names)}
    kinds = Counter(
        tuple(tuple(sorted((places[name], one.tp, one.fp + one.fn) for name, one in groups.items())) for groups in row)
        for row in rows
    )
    sizes = _sizes_of_rows(rows, names)

    def figure(weights: Mapping[_Kind, float], added: Sequence[float], right: int) -> float:
        """The signed sum with `added` units per class, which are right for models with sign `right`, else errors."""
        total = 0.0
        for model, sign in enumerate(signs):
            tp, errors = _sums(weights, model, len(names))
            more = tp if sign == right else errors
            for place, units in enumerate(added):
                more[place] += units
            total += sign * _mean_f1(tp, errors)
        return total

    value = figure(kinds, [], 0)
    source = random.Random(_SEED)
    lows, highs = [], []
    for _ in range(resamples_for(confidence)):
        weights = {kind: source.gammavariate(number, 1.0) for kind, number in kinds.items()}
        added = [size * source.expovariate(1.0) for size in sizes]
        lows.append(figure(weights, added, right=-1))
        highs.append(figure(weights, added, right=1))
    tail = (1 - confidence) / 2
    low, high = intervals.percentile(sorted(lows), tail), intervals.percentile(sorted(highs), 1 - tail)
    return Interval(value, min(low, value), max(high, value))


def _sizes_of_rows(rows: Iterable[Tuple[Groups, ...]], names: Sequence[str]) -> List[float]:
    """Of each class the mean number of units in the row of a randomly drawn unit; 1 without such rows."""
    sums, squares = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for row in rows:
        sizes: Dict[str, float] = {}
        for groups in row:
            for name, one in groups.items():
                sizes[name] = max(sizes.get(name, 0.0), one.tp + max(one.fp, one.fn))
        for name, size in sizes.items():
            sums[name] += size
            squares[name] += size * size
    return [squares[name] / sums[name] if sums[name] else 1.0 for name in names]


def _sums(weights: Mapping[_Kind, float], model: int, classes: int) -> Tuple[List[float], List[float]]:
    """A model's weighted right units and errors per class."""
    right, wrong = [0.0] * classes, [0.0] * classes
    for kind, weight in weights.items():
        for place, tp, errors in kind[model]:
            right[place] += tp * weight
            wrong[place] += errors * weight
    return right, wrong


def _mean_f1(right: Sequence[float], wrong: Sequence[float]) -> float:
    """Mean F1 over the classes that occur; 0 without any."""
    scores = [2 * tp / (2 * tp + errors) for tp, errors in zip(right, wrong) if tp or errors]
    return math.fsum(scores) / max(len(scores), 1)


def _require_as_many(truths: Sequence[Answer], *answers: Sequence[Answer]) -> None:
    if not truths or any(len(one) != len(truths) for one in answers):
        raise ValueError("{} answers for {} rows".format(" and ".join(str(len(one)) for one in answers), len(truths)))
