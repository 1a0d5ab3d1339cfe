"""Metrics of a model, and of one model against another, with intervals that say how far they can be trusted.

Accuracy has formulas of its own (`stats.proportion`, `stats.paired_drop`). For F1 in its forms the interval reaches as
far as the wider of two on each side:

- the bootstrap over rows, paired where two models saw the same rows: it knows how errors come together in rows and
  classes, and is blind where there are next to none, since it can only draw rows that it has seen;
- for each class (micro averages: for all together) the interval that a proportion of as many units would have,
  `stats.proportion` or `stats.paired_drop`, joined over classes by `stats.mean_of`; of the F1 of one class alone, that
  which follows from a proportion (`stats.f1_of_share`); of a class among others, the wider of these two on each side,
  since what follows from a proportion lies higher where F1 is low. It knows that 20 labels without an error are not
  2000 without one. A unit is a label or span that is there or was found; where one was put for another, both together
  are one. Units of one row count for as many as they are worth (`clusters`).

The value of a macro F1 is the mean over the classes that occur, as in scikit-learn. Its interval is about the mean over
all classes of the model: what no row has says nothing about a class that will come up one day. Such a class may have
any F1 from 0 to 1, or up to what the answers that gave it wrongly leave room for, and as these are no errors of chance
that would even out over classes, the interval reaches further by all of them together.

Standard library only, but for the bootstrap itself.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from edgepack_runtime import distributions, metrics, stats
from edgepack_runtime.clusters import Row, design_effect
from edgepack_runtime.metrics import Answer, Pair, Tally
from edgepack_runtime.stats import Interval

_ALL = ""  # the one class of micro averages; labels are never empty
_NOTHING = Tally(0, 0, 0)
_NO_REACH = Interval(0.0, 0.0, 0.0)
Groups = Dict[str, Tally]
_T = TypeVar("_T")


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
        return stats.proportion(sum(map(metrics.same, truths, answers)), len(truths), confidence)
    rows = [_groups(metric, positive, (truth, answer)) for truth, answer in zip(truths, answers)]
    kinds, totals = _kinds([(row,) for row in rows])
    found = stats.bootstrap(kinds, lambda counts: totals(counts)[0], confidence)
    by_class = _by_class(rows)
    parts = []
    for name in _meant(metric, classes, by_class):
        tallies = by_class.get(name, [])
        whole = metrics.pooled(tallies)
        worth = _worth(tallies)
        units = sum(map(_units, tallies)) / worth
        if whole.support == 0:
            parts.append(_Part(0.0, _NO_REACH, Interval(0.0, 0.0, _most_f1(tallies, confidence))))
        else:
            known = stats.proportion(whole.f1 * units, units, confidence)
            if metric in (metrics.F1, metrics.MACRO_F1):
                by_share = stats.f1_of_share(stats.proportion(whole.tp / worth, units, confidence))
                known = by_share if metric == metrics.F1 else _wider_of(known, by_share)
            parts.append(_Part(whole.f1, known, _NO_REACH))
    return _wider(_expanded(found, len(rows), len(by_class), confidence), parts, len(by_class), least=0.0)


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
        return stats.paired_drop(counts.lost, counts.won, counts.n, confidence)
    both = [
        (_groups(metric, positive, (truth, theirs)), _groups(metric, positive, (truth, ours)))
        for truth, theirs, ours in zip(truths, first, second)
    ]
    kinds, totals = _kinds(both)

    def lower_by(counts: Mapping[int, int]) -> float:
        theirs, ours = totals(counts)
        return theirs - ours

    found = stats.bootstrap(kinds, lower_by, confidence)
    by_class = _by_class([_joined(*groups) for groups in both])
    parts = []
    for name in _meant(metric, classes, by_class):
        pairs = by_class.get(name, [])
        theirs, ours = (metrics.pooled(pair[model] for pair in pairs) for model in (0, 1))
        if theirs.support == 0:
            most, least = (_most_f1([pair[model] for pair in pairs], confidence) for model in (0, 1))
            parts.append(_Part(0.0, _NO_REACH, Interval(0.0, -least, most)))
        else:
            known = _paired(pairs, confidence, one_each=metric == metrics.F1)
            parts.append(_Part(theirs.f1 - ours.f1, known, _NO_REACH))
    return _wider(_expanded(found, len(both), len(by_class), confidence), parts, len(by_class), least=-1.0)


class _Part(NamedTuple):
    """What one class adds to a mean over classes: its figure, how far chance reaches around it, and what is unknown.

    `by_chance` and `unknown` count with the distances of their ends from their values alone.
    """

    value: float
    by_chance: Interval
    unknown: Interval


def _most_f1(tallies: Sequence[Tally], confidence: float) -> float:
    """The F1 that a class which no row has may have at most, when answers gave it, of which none was right."""
    false = sum(one.fp for one in tallies)
    return stats.f1_of_share(stats.proportion(0, false / _worth(tallies), confidence)).high if false else 1.0


def _worth(tallies: Sequence[Tally]) -> float:
    """How many of the units in these rows are worth one that is independent of the others."""
    return design_effect(Counter(Row(_units(one), _wrong(one)) for one in tallies))


def _wider_of(one: Interval, other: Interval) -> Interval:
    """The value of `one`, and the farther end of both on each side."""
    return Interval(one.value, min(one.low, other.low), max(one.high, other.high))


def _meant(metric: str, classes: Optional[Sequence[str]], found: Mapping[str, object]) -> List[str]:
    """The classes that `metric` is a mean of, sorted, those that occur in no row included."""
    if metric != metrics.MACRO_F1:
        return [*found] or [_ALL]
    if not classes:
        raise ValueError("macro_f1 is about the classes of a model, and there are none")
    return sorted({*classes, *found})


def _paired(pairs: Sequence[Tuple[Tally, Tally]], confidence: float, *, one_each: bool) -> Interval:
    """Interval of the drop of one class. With `one_each`, rows have one of its units or none, and a unit costs what it
    can cost at most; else that or its share of the units, whichever is more.
    """
    wrong = [_wrong(ours) - _wrong(theirs) for theirs, ours in pairs]
    sizes = [max(map(_units, pair)) for pair in pairs]
    units = sum(sizes)
    worth = design_effect(Counter(Row(size, abs(more)) for size, more in zip(sizes, wrong)))
    lost, won = sum(more for more in wrong if more > 0), -sum(more for more in wrong if more < 0)
    part = stats.paired_drop(lost / worth, won / worth, units / worth, confidence)
    cost = _cost(pairs, units)
    return Interval(*((cost if one_each else max(cost, 1.0)) * end for end in part))


def _joined(theirs: Groups, ours: Groups) -> Dict[str, Tuple[Tally, Tally]]:
    return {name: (theirs.get(name, _NOTHING), ours.get(name, _NOTHING)) for name in (*theirs, *ours)}


def _by_class(rows: Sequence[Mapping[str, _T]]) -> Dict[str, List[_T]]:
    """What each class has in the rows that it occurs in; sorted, so that sums are the same everywhere."""
    found: Dict[str, List[_T]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return dict(sorted(found.items()))


def _cost(pairs: Sequence[Tuple[Tally, Tally]], units: int) -> float:
    """How much F1 falls per share of `units` that turns wrong, at most, of one label of which a row has one or none.

    Such a unit is missed or found where it is not, never both: F1 = 2 tp / (tp + fn + tp + fp) loses by a miss
    (2 - F1) / (2 tp + fp + fn), which is more than it loses by the other.
    """
    worse = min((metrics.pooled(side) for side in zip(*pairs)), key=lambda tally: tally.f1)
    return (2 - worse.f1) * units / max(2 * worse.tp + worse.fp + worse.fn, 1)


def _groups(metric: str, positive: Optional[str], pair: Pair) -> Groups:
    """The tallies of one row whose F1 `metric` is the mean of; a class that the row has nothing of is left out."""
    tallies = metrics.row_tallies(*pair)
    if metric == metrics.MACRO_F1:
        return tallies
    if metric in (metrics.MICRO_F1, metrics.ENTITY_F1):
        return {_ALL: metrics.pooled(tallies.values())} if tallies else {}
    if metric == metrics.F1:
        return {name: tally for name, tally in tallies.items() if name == positive}
    raise ValueError(f"{metric!r} is no metric: there are {', '.join(metrics.METRICS)}")


def _kinds(
    rows: Sequence[Tuple[Groups, ...]],
) -> Tuple[List[int], Callable[[Mapping[int, int]], Tuple[float, ...]]]:
    """The kind of each row, and what gives the mean F1 of each model from the number of rows of each kind."""
    places: Dict[str, int] = {}
    numbers: Dict[Tuple[Tuple[Tuple[int, int, int], ...], ...], int] = {}
    kinds = []
    for row in rows:
        # Of a class only these two are needed: F1 = 2 tp / (2 tp + errors).
        told = tuple(
            tuple(
                (places.setdefault(name, len(places)), tally.tp, tally.fp + tally.fn)
                for name, tally in sorted(groups.items())  # sums are the same everywhere, to the last bit
            )
            for groups in row
        )
        kinds.append(numbers.setdefault(tuple(tuple(sorted(groups)) for groups in told), len(numbers)))
    by_model = list(zip(*numbers))  # model -> kind -> its classes

    def totals(counts: Mapping[int, int]) -> Tuple[float, ...]:
        return tuple(_mean_f1(of_kind, counts, len(places)) for of_kind in by_model)

    return kinds, totals


def _mean_f1(of_kind: Sequence[Sequence[Tuple[int, int, int]]], counts: Mapping[int, int], n_classes: int) -> float:
    right, wrong = [0] * n_classes, [0] * n_classes
    for kind, rows in counts.items():
        for place, tp, errors in of_kind[kind]:
            right[place] += tp * rows
            wrong[place] += errors * rows
    scores = [2 * tp / (2 * tp + errors) for tp, errors in zip(right, wrong) if tp or errors]
    return sum(scores) / max(len(scores), 1)


def _units(tally: Tally) -> int:
    return tally.tp + _wrong(tally)


def _wrong(tally: Tally) -> int:
    return max(tally.fp, tally.fn)


def _expanded(found: Interval, rows: int, classes: int, confidence: float) -> Interval:
    """What a bootstrap of the mean over so many classes would be, had their rows not been used to know their figures.

    Resamples of m rows vary by (m - 1) / m of what samples do, and how much those vary is known by the rows alone,
    which Student's t allows for (T. C. Hesterberg, American Statistician 69 (2015) 371-386, "expanded percentiles"); a
    class has `rows` / `classes` of them on average.
    """
    each = rows / max(classes, 1)
    factor = math.sqrt(each / (each - 1)) if each > 2 else math.sqrt(2)
    factor *= distributions.student_t(max(rows - 1, 1), confidence) / distributions.normal(confidence)
    return Interval(found.value, *(found.value + factor * (end - found.value) for end in found[1:]))


def _wider(found: Interval, parts: Sequence[_Part], occurring: int, least: float) -> Interval:
    """The value of `found` in an interval of the mean of `parts`, within `least` to 1.

    Args:
        found: of the rows, as the bootstrap sees it, which is a mean over the classes that are `occurring` in them.
        parts: one for each class.
    """
    share = occurring / len(parts)  # of the classes that occur in those that there are
    mean = math.fsum(part.value for part in parts) / len(parts)
    joined = stats.mean_of([part.by_chance for part in parts])
    below = max(share * (found.value - found.low), joined.value - joined.low)
    above = max(share * (found.high - found.value), joined.high - joined.value)
    below += math.fsum(part.unknown.value - part.unknown.low for part in parts) / len(parts)
    above += math.fsum(part.unknown.high - part.unknown.value for part in parts) / len(parts)
    low, high = min(mean - below, found.value), max(mean + above, found.value)
    return Interval(found.value, max(low, least), min(high, 1.0))


def _require_as_many(truths: Sequence[Answer], *answers: Sequence[Answer]) -> None:
    if not truths or any(len(one) != len(truths) for one in answers):
        raise ValueError("{} answers for {} rows".format(" and ".join(str(len(one)) for one in answers), len(truths)))
