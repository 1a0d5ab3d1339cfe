"""Metrics of a model, and of one model against another, with intervals that say how far they can be trusted.

Accuracy has formulas (`stats.proportion`, `stats.paired_drop`). F1 in its forms has a percentile bootstrap over rows,
paired where two models saw the same rows: rows are given random weights (D. B. Rubin, Annals of Statistics 9 (1981)
130-134), so errors that come together in a row stay together.

A bootstrap draws only rows that it has seen: twenty rows without an error would look certain. So each end counts one
more row of every class: a wrong one for the low end, a right one for the high end. For a proportion this gives the
exact interval of Clopper and Pearson. The added row has as many units (labels or spans) of its class as the row of a
unit drawn at random, since a text that is misunderstood costs all its spans.

The value of a macro F1 is the mean over the classes that occur, as in scikit-learn. Its interval is about the mean over
all classes of the model: the F1 of a class without golden rows may be anything from 0 to 1, or up to what the answers
that gave it wrongly leave room for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.stats import intervals, metrics
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import Answer, Tally

RESAMPLES = 2000
_SEED = 20240229  # the same rows give the same interval everywhere
_ALL = ""  # the one class of micro averages; labels are never empty
Groups = Dict[str, Tally]
# What rows of one kind add to the classes, for each model: (place of the class, right units, errors).
_Kind = Tuple[Tuple[Tuple[int, int, int], ...], ...]


class Counts(NamedTuple):
    """Whole answers on `n` rows. `lost`: only the first model's is right; `won`: only the second's."""

    n: int
    right: int  # the second model's
    lost: int
    won: int


def count(truths: Sequence[Answer], first: Sequence[Answer], second: Sequence[Answer]) -> Counts:
    """Compare two models row by row. Raises ValueError when there are not as many answers as rows."""
    _require_as_many(truths, first, second)
    right = [
        (metrics.same(truth, theirs), metrics.same(truth, ours)) for truth, theirs, ours in zip(truths, first, second)
    ]
    lost, won = right.count((True, False)), right.count((False, True))
    return Counts(len(right), sum(ours for _, ours in right), lost, won)


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
        metric: one of `metrics.METRICS`.
        truths: what the rows say, at least one.
        answers: what the model says, in the same order.
        confidence: 0 to 1, two-sided.
        positive: the label that `f1` is about; the other metrics do not look at it.
        classes: those of the model, which `macro_f1` is about; the other metrics do not look at them.

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
    """How much lower `metric` is for the second of two models on the same rows, as a fraction (-1 to 1), paired.

    Arguments and errors as those of `interval`. Of a class that no row has, neither model's F1 is known.
    """
    _require_as_many(truths, first, second)
    if metric == metrics.ACCURACY:
        counts = count(truths, first, second)
        return intervals.paired_drop(counts.lost, counts.won, counts.n, confidence)
    rows = [
        (_groups(metric, positive, truth, theirs), _groups(metric, positive, truth, ours))
        for truth, theirs, ours in zip(truths, first, second)
    ]
    return _bootstrap(rows, _classes(metric, positive, classes), (1, -1), confidence)


def resamples_for(confidence: float) -> int:
    """How many resamples have ten beyond each end of an interval at `confidence` (0 to 1), and `RESAMPLES` at least.

    With fewer, an end is one of the few outermost resamples, wherever these happen to lie. 2,000 up to 0.99, 20,000 at
    0.999, and time grows with them.
    """
    return max(RESAMPLES, math.ceil(round(20 / (1 - confidence), 6)))  # 10 in a tail of half of what is left


def _classes(metric: str, positive: Optional[str], classes: Optional[Sequence[str]]) -> Sequence[str]:
    """The classes that `metric` is a mean of, whether rows have them or not."""
    if metric == metrics.MACRO_F1:
        if not classes:
            raise ValueError("macro_f1 is about the classes of a model, and there are none")
        return classes
    return [positive or _ALL] if metric == metrics.F1 else [_ALL]


def _groups(metric: str, positive: Optional[str], truth: Answer, answer: Answer) -> Groups:
    """The tallies of one row whose F1 `metric` is the mean of; a class that the row has nothing of is left out."""
    tallies = metrics.row_tallies(truth, answer)
    if metric == metrics.MACRO_F1:
        return tallies
    if metric in (metrics.MICRO_F1, metrics.ENTITY_F1):
        return {_ALL: metrics.pooled(tallies.values())} if tallies else {}
    if metric == metrics.F1:
        return {name: tally for name, tally in tallies.items() if name == positive}
    raise ValueError(f"{metric!r} is no metric: there are {', '.join(metrics.METRICS)}")


def _bootstrap(
    rows: Sequence[Tuple[Groups, ...]], classes: Iterable[str], signs: Sequence[int], confidence: float
) -> Interval:
    """Interval of the sum of the models' mean F1, each with its sign.

    Args:
        rows: the tallies of each row, for each model.
        classes: those of the models; classes that only rows have are added.
        signs: one for each model.
        confidence: 0 to 1, two-sided.
    """
    names = sorted({*classes, *(name for row in rows for groups in row for name in groups)})
    places = {name: place for place, name in enumerate(names)}
    kinds = Counter(
        tuple(tuple(sorted((places[name], one.tp, one.fp + one.fn) for name, one in groups.items())) for groups in row)
        for row in rows
    )
    sizes = [_size_of_a_row(rows, name) for name in names]

    def figure(weights: Mapping[_Kind, float], added: Sequence[float], right: int) -> float:
        """The sum, where each class has an `added` number of units: of a model whose sign is `right`, right ones."""
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


def _size_of_a_row(rows: Iterable[Tuple[Groups, ...]], name: str) -> float:
    """How many units of a class the row of a unit drawn at random has; 1 where no row has any."""
    tallies = [[groups[name] for groups in row if name in groups] for row in rows]
    sizes = [max(one.tp + max(one.fp, one.fn) for one in found) for found in tallies if found]
    return sum(size * size for size in sizes) / sum(sizes) if sizes else 1.0


def _sums(weights: Mapping[_Kind, float], model: int, classes: int) -> Tuple[List[float], List[float]]:
    """Right units and errors of each class, as a model has them where rows of each kind have these weights."""
    right, wrong = [0.0] * classes, [0.0] * classes
    for kind, weight in weights.items():
        for place, tp, errors in kind[model]:
            right[place] += tp * weight
            wrong[place] += errors * weight
    return right, wrong


def _mean_f1(right: Sequence[float], wrong: Sequence[float]) -> float:
    """The mean over the classes that occur; 0 where none does."""
    scores = [2 * tp / (2 * tp + errors) for tp, errors in zip(right, wrong) if tp or errors]
    return math.fsum(scores) / max(len(scores), 1)


def _require_as_many(truths: Sequence[Answer], *answers: Sequence[Answer]) -> None:
    if not truths or any(len(one) != len(truths) for one in answers):
        raise ValueError("{} answers for {} rows".format(" and ".join(str(len(one)) for one in answers), len(truths)))
