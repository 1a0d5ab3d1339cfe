"""What accuracy gates can show with the test rows there are, known before anything is trained.

A gate passes when a whole interval is on the right side of its limit (docs/30-gates.md). How narrow the interval can
be, only the number of test rows decides: with too few, the best model there is ends inconclusive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgepack.artifacts import Row
from edgepack.recipe.gates import MOST_GOLDEN_ROWS, AccuracyGate, ClassGate, GoldenRows
from edgepack.wording import counted, metric_name
from edgepack_runtime import clusters, metrics, stats
from edgepack_runtime.spans import Span
from edgepack_runtime.stats import Interval

MOST_GATED_ROWS: Final = GoldenRows().rows  # where the recipe does not say
DROPS: Final = (1.0, 2.0, 3.0, 5.0)  # points that a draft suggests, the first that can be decided
CHANGED: Final = 0.01  # of the answers are taken to change by INT8, half of them for the better
_POSITIVE_SHARE: Final = 0.5  # of a label that turns wrong, at a perfect F1: 2 tp / (2 tp + errors) loses by half

# Answers that count together, for each class that the metric is a mean of; 0 of a class that no row has. Those of one
# row count for as many as they are worth.
Units = Sequence[float]
_SHOWN: Final = 3
_UNKNOWN: Final = Interval(0.0, 0.0, 0.0)  # nothing is known to be reached, and chance is not why


def units_of(
    metric: str, rows: int, read: Callable[[], Iterable[Row]], labels: Sequence[str], most: int = MOST_GATED_ROWS
) -> Units:
    """How many answers there are for `metric` in the test rows that a gate is measured on.

    Args:
        rows: all test rows.
        read: gives them, where they are needed.
        labels: those of the model.
        most: rows of a gate, at most.
    """
    share = min(1.0, most / max(rows, 1))
    if metric == metrics.ACCURACY:
        return [rows * share]
    answers = [row.label for row in read()]
    if metric in (metrics.MICRO_F1, metrics.ENTITY_F1):
        together = _worth([len(_names(answer)) for answer in answers])
        return [together * share] if together else []
    worth = _worth_by_class(answers)
    if metric == metrics.F1:
        return [worth.get(metrics.positive_label(labels, answers), 0.0) * share] if len(labels) == 2 else []
    return [worth.get(name, 0.0) * share for name in sorted({*labels, *worth})]


def best_drop(metric: str, units: Units, confidence: float, changed: float = 0.0) -> float:
    """How much (0 to 1) `metric` may yet have dropped, as far as is known, when no answer changed.

    `units` are not empty. `changed` is the share of answers that did change, as many for the better as for the worse.
    The same that `scoring.drop` says where both models are right everywhere.
    """
    parts = []
    for number in units:
        one_way = max(1.0, changed / 2 * number) if changed else 0.0
        fits = 2 * one_way <= number
        known = stats.paired_drop(one_way, one_way, number, confidence) if number and fits else Interval(0.0, -1.0, 1.0)
        parts.append(known if number else _UNKNOWN)
    chance = stats.mean_of(parts).high * (_POSITIVE_SHARE if metric == metrics.F1 else 1.0)
    return chance + sum(number == 0 for number in units) / len(units)


def best_value(metric: str, units: Units, confidence: float) -> float:
    """What a metric (0 to 1) is known to reach when every answer is right, as `scoring.interval` says."""
    known = [stats.proportion(number, number, confidence) if number else _UNKNOWN for number in units]
    return stats.mean_of([stats.f1_of_share(one) for one in known] if metric == metrics.F1 else known).low


def rows_for(rows: int, units: Units, decides: Callable[[Units], bool], most: int) -> int | None:
    """The fewest test rows, with their labels in the same shares, that `decides`; None if it takes more than `most`.

    `units` are those of `rows`.
    """

    def enough(number: int) -> bool:
        return decides([one * number / rows for one in units])

    if not enough(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def suggested_drop(metric: str, units: Units, confidence: float) -> float | None:
    """The tightest of DROPS, in points, that is decided if CHANGED of the answers change; None of none."""
    known = 100 * best_drop(metric, units, confidence, CHANGED) if units else math.inf
    return next((points for points in DROPS if known <= points), None)


def rows_for_drop(metric: str, rows: int, units: Units, confidence: float, points: float) -> int | None:
    """How many test rows decide a limit of so many points if CHANGED of the answers change, if a gate reads as many.

    `units` are those of `rows`, or of as many of them as a gate reads.
    """
    gated = min(rows, MOST_GATED_ROWS)
    return rows_for(
        gated, units, lambda some: 100 * best_drop(metric, some, confidence, CHANGED) <= points, MOST_GATED_ROWS
    )


def check_gate(
    gate: AccuracyGate,
    rows: int,
    read: Callable[[], Iterable[Row]],
    labels: Sequence[str],
    most: int = MOST_GATED_ROWS,
) -> list[tuple[str, str]]:
    """Reason and fix of each limit that no model can be shown to keep. Arguments as those of `units_of`."""
    classes = _check_classes(gate.per_class, rows, read, labels, gate.confidence, most) if gate.per_class else []
    metric = gate.metric
    assert metric is not None, "filled in when the recipe was loaded"
    limited = gate.min is not None or gate.max_drop_points is not None
    units = units_of(metric, rows, read, labels, most) if limited else []
    if not units:
        return classes
    if 0 in units:
        classes = [_unseen(metric, units, read, labels), *classes]
        if metric == metrics.F1:
            return classes
    gated = min(rows, most)
    named, shown = metric_name(metric), counted(gated, "test row")
    found = []
    reached = best_value(metric, units, gate.confidence)
    if gate.min is not None and reached < gate.min:
        limit = gate.min
        needed = rows_for(
            gated, units, lambda some: best_value(metric, some, gate.confidence) >= limit, MOST_GOLDEN_ROWS
        )
        reason = (
            f"`gates.accuracy.min` is {limit:g}, and {shown} cannot show it: were every answer right, {named} would be "
            f"known to be {reached:.4f} or more, and no better"
        )
        found.append((reason, _fix(needed, most, f"a limit of {math.floor(100 * reached) / 100:g} or less")))
    dropped = 100 * best_drop(metric, units, gate.confidence)
    if gate.max_drop_points is not None and dropped > gate.max_drop_points:
        points = gate.max_drop_points
        needed = rows_for(
            gated, units, lambda some: 100 * best_drop(metric, some, gate.confidence) <= points, MOST_GOLDEN_ROWS
        )
        reason = (
            f"`gates.accuracy.max_drop_points` is {points:g}, and {shown} cannot show it: were no answer changed, "
            f"{named} could yet have dropped by {dropped:.2f} points"
        )
        found.append((reason, _fix(needed, most, f"a limit of {math.ceil(10 * dropped) / 10:g} or more")))
    return [*found, *classes]


def _unseen(metric: str, units: Units, read: Callable[[], Iterable[Row]], labels: Sequence[str]) -> tuple[str, str]:
    """Reason and fix where no test row has a class that `metric` is about."""
    if metric == metrics.F1:
        name = metrics.positive_label(labels, [row.label for row in read()])
        return f"`gates.accuracy` is about the F1 of {name!r}, and no test row has it", "add test rows of it"
    seen = {name for row in read() for name in _names(row.label)}
    names = [label for label in sorted(labels) if label not in seen]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    told = ", ".join(map(repr, names[:_SHOWN]))
    reason = (
        f"`gates.accuracy` is about {metric_name(metric)}, and no test row has {told}{more}: what is unknown of "
        f"{counted(len(names), 'label')} out of {len(units)} makes its interval {len(names) / len(units):.4f} wider"
    )
    return reason, "add test rows of every label"


def floors(gate: ClassGate) -> Iterator[tuple[str, float | None, Mapping[str, float]]]:
    """The recipe's key of each figure of a class, what every class must reach, and named ones instead."""
    yield "recall", gate.recall, gate.recall_of
    yield "precision", gate.precision, gate.precision_of
    yield "f1", gate.f1, gate.f1_of


def _check_classes(
    gate: ClassGate, rows: int, read: Callable[[], Iterable[Row]], labels: Sequence[str], confidence: float, most: int
) -> list[tuple[str, str]]:
    """Reason and fix for each floor that some class has too few answers in the test rows to show.

    Of precision it is not known how many answers there will be: taken to be as many as there should be.
    """
    answers = [row.label for row in read()]
    counts, worth = Counter(name for answer in answers for name in _names(answer)), _worth_by_class(answers)
    share = min(1.0, most / max(rows, 1))
    found = []
    for key, every, named in floors(gate):
        asked = {label: floor for label in labels if (floor := named.get(label, every)) is not None}
        known = {label: _best_of_class(key, worth.get(label, 0.0) * share, confidence) for label in asked}
        short = [label for label, floor in asked.items() if known[label] < floor]
        if short:
            found.append(_short(key, asked, known, counts, short))
    return found


def _short(
    key: str, asked: Mapping[str, float], known: Mapping[str, float], counts: Mapping[str, int], short: Sequence[str]
) -> tuple[str, str]:
    """Reason and fix where the floors of the `short` classes cannot be shown: the one that is missed by most is named.

    Args:
        key: of the recipe.
        asked: floor of each class, 0 to 1.
        known: what each is known to reach at best.
        counts: test answers of each.
    """
    worst = min(short, key=lambda label: known[label] - asked[label])
    others = sorted(asked[label] for label in short if asked[label] != asked[worst])
    same, unseen = len(short) - len(others) - 1, sum(not counts[label] for label in short)
    told = f"{'an F1' if key == 'f1' else f'a {key}'} of {asked[worst]:g} cannot be shown for {worst!r}"
    if same:
        told += f" and {same} more"
    if others:
        ends = dict.fromkeys(f"{end:g}" for end in (others[0], others[-1]))
        told += f", nor one of {' to '.join(ends)} for {len(others)} more"
    if counts[worst]:
        answers = counted(counts[worst], "test answer")
        told += f": were all {answers} of {worst!r} right, it would be known to be {known[worst]:.4f} or more"
        if unseen:
            told += f"; {unseen} of the others have no test row"
    elif unseen > 1:
        told += f": {worst!r} and {unseen - 1} of the others have no test row"
    else:
        told += f": {worst!r} has no test row"
    fix = "add test rows of them, or lower their floors; as it is, the gate ends inconclusive"
    if len(short) == 1:
        fix = "add test rows of it, or lower its floor; as it is, the gate ends inconclusive"
    return f"`gates.accuracy.per_class`: {told}", fix


def _best_of_class(key: str, answers: float, confidence: float) -> float:
    """What `key` of a class is known to reach when all of its answers are right."""
    if not answers:
        return 0.0
    reached = stats.proportion(answers, answers, confidence).low
    return 2 * reached / (1 + reached) if key == "f1" else reached


def _fix(needed: int | None, most: int, limit: str) -> str:
    raised = f", with `gates.golden.rows: {needed}`" if needed is not None and needed > most else ""
    rows = f"use {needed} test rows or more" + raised + ", or " if needed is not None else "use "
    return f"{rows}{limit}; as it is, the gate ends inconclusive whatever is trained"


def _worth_by_class(answers: Iterable[str | Sequence[str | Span]]) -> dict[str, float]:
    """How many independent answers those of each class are worth, where all of them are right."""
    sizes: dict[str, list[int]] = {}
    for answer in answers:
        for name, number in Counter(_names(answer)).items():
            sizes.setdefault(name, []).append(number)
    return {name: _worth(numbers) for name, numbers in sizes.items()}


def _worth(sizes: Sequence[int]) -> float:
    """The same of rows with so many of them each."""
    return sum(sizes) / clusters.design_effect(Counter(clusters.Row(size, 0) for size in sizes))


def _names(answer: str | Sequence[str | Span]) -> list[str]:
    """The class of each label or span of an answer."""
    if isinstance(answer, str):
        return [answer]
    return [one.label if isinstance(one, Span) else one for one in answer]
