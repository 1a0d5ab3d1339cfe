"""Widths of the intervals that accuracy gates get from the test rows, and labels without test rows."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from edgepack.artifacts import Row
from edgepack.recipe.gates import GoldenRows
from edgepack.util.text import counted
from edgepack_runtime.schema.gates import AccuracyLimits
from edgepack_runtime.stats import intervals, metrics

MOST_GATED_ROWS: Final = GoldenRows().rows  # default of the recipe
DROPS: Final = (1.0, 2.0, 3.0, 5.0)  # points that a draft suggests
_RIGHT: Final = 0.9  # assumed accuracy of a quoted width
_CHANGED: Final = 0.01  # share of answers that INT8 changes, half of them to right ones
_SHOWN: Final = 3


def half_width(rows: int, confidence: float) -> float:
    """Half width, in points, of the interval of an accuracy of 90 % on so many rows."""
    known = intervals.proportion(_RIGHT * rows, rows, confidence)
    return 50 * (known.high - known.low)


def drop_half_width(rows: int, confidence: float) -> float:
    """Half width, in points, of the interval of a drop if 1 % of so many answers change (at least two)."""
    one_way = max(1.0, _CHANGED / 2 * rows)
    return 100 * intervals.paired_drop(one_way, one_way, max(rows, 2), confidence).high


def suggested_drop(rows: int, confidence: float) -> float | None:
    """The smallest of DROPS, in points, of which `drop_half_width` is at most half; None if there is none.

    A model that loses nothing then passes, and one at the limit is inconclusive.
    """
    known = drop_half_width(rows, confidence)
    return next((points for points in DROPS if known <= points / 2), None)


def rows_for_drop(confidence: float) -> int:
    """The fewest rows for which `suggested_drop` finds a limit."""
    found = intervals.first_number(lambda rows: suggested_drop(rows, confidence) is not None, 0)
    assert found is not None, "enough rows show any limit"
    return found


def suggested_min(majority: float, rows: int, confidence: float) -> float:
    """The lowest `min` in whole percent above the score of the most frequent answer.

    At most what a model passes that has all rows right: with few rows that is less. It is no higher, since gates ask
    anyway for a model that is shown to be better than that answer, on the same rows: on 30 to 300 rows no such model
    fails this `min`. A higher one fails good models: the high end of the answer's interval, on 30 rows of which it has
    70 %, fails 13 % of models with an accuracy of 80 %; this `min` 0.02 %.

    Args:
        majority: score of the most frequent answer, 0 to 1.
        rows: number of golden rows.
    """
    above = math.floor(100 * majority + 1) / 100
    return min(above, math.ceil(100 * intervals.proportion(rows, rows, confidence).low - 1) / 100) if rows else above


def rows_above_majority(majority: float, confidence: float, power: float) -> int:
    """Test rows that show a model with half the errors of the most frequent answer to be better than that answer.

    Tango's interval excludes a difference of 0 where the gain exceeds `normal(confidence) * sqrt(differ / rows)`
    (McNemar's test). The answer's own score is known, so the gain varies as the model's accuracy does. Errors are taken
    not to depend on the label.

    Args:
        majority: share of the rows with the most frequent answer, above 0 and below 1.
        confidence: of the gate, 0 to 1.
        power: share of such models that are to be shown, 0.5 or more and below 1.
    """
    right = (1 + majority) / 2
    differ, gain = right * (1 - majority) + (1 - right) * majority, right - majority
    shown, beyond = intervals.normal(confidence), statistics.NormalDist().inv_cdf(power)
    return math.ceil(((shown * math.sqrt(differ) + beyond * math.sqrt(right * (1 - right))) / gain) ** 2)


def check_majority(most: int, rows: int, confidence: float) -> Iterator[tuple[str, str]]:
    """Reason and fix if most good models are not shown to be better than the most frequent answer.

    Args:
        most: rows with that answer.
        rows: number of golden rows.
    """
    if 0 < most < rows and rows < rows_above_majority(most / rows, confidence, 0.5):
        needed = rows_above_majority(most / rows, confidence, 0.8)
        yield (
            f"{counted(rows, 'test row')} are too few to show that a good model is better than the most frequent "
            f"answer, which is right in {most / rows:.0%}: most models with half its errors are not shown to be",
            f"label more rows for test; {needed} show four of five such models",
        )


def describe_gate(gate: AccuracyLimits, total: int, test: Iterable[Row], most: int = MOST_GATED_ROWS) -> str:
    """The widths of a gate's intervals, as one line.

    Args:
        total: number of test rows, at least 1.
        test: the test rows; read only for gates on classes.
        most: maximum number of golden rows.
    """
    rows = min(total, most)
    text = (
        f"gates.accuracy: {counted(rows, 'golden row')} give an interval of about "
        f"±{half_width(rows, gate.confidence):.1f} points where {_RIGHT:.0%} are right"
    )
    if gate.max_drop_points is not None or gate.max_regression_points is not None:
        text += f", and about ±{drop_half_width(rows, gate.confidence):.1f} points for a drop"
    if gate.per_class is not None or gate.metric in (metrics.MACRO_F1, metrics.F1):
        rows_of = Counter(name for row in test for name in set(metrics.classes_of(row.label)))
        rarest = min(rows_of, key=lambda name: (rows_of[name], name), default=None)
        if rarest is not None:
            few = max(rows_of[rarest] * rows // total, 1)
            text += f"; the rarest label, {rarest!r}, has {few} of them: ±{half_width(few, gate.confidence):.1f} points"
    return text


def check_gate(
    gate: AccuracyLimits, test: Iterable[Row], labels: Sequence[str], most: int = MOST_GATED_ROWS
) -> list[tuple[str, str]]:
    """Reason and fix of each limit that cannot pass, for test rows are too few, or have none of its labels.

    Args:
        most: maximum number of golden rows.
    """
    answers = [row.label for row in test]
    return [*_out_of_reach(gate, answers[:most]), *_unseen(gate, answers, labels)]


def _out_of_reach(gate: AccuracyLimits, answers: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Limits that a model misses that has every row right, and loses none."""
    rows = len(answers)
    if not rows or not isinstance(answers[0], str) or gate.metric not in (None, metrics.ACCURACY):
        return
    yield from check_majority(max(Counter(answers).values()), rows, gate.confidence)
    fix = "add test rows, or choose a limit that so few can show"
    yield from min_out_of_reach(gate, rows, "golden row", fix)
    unchanged = 100 * intervals.paired_drop(0, 0, rows, gate.confidence).high
    for key in ("max_drop_points", "max_regression_points"):
        limit = getattr(gate, key)
        if limit is not None and limit < unchanged:
            yield (
                f"`gates.accuracy.{key}` is {limit:g}, which {counted(rows, 'golden row')} cannot show: "
                f"answers that are all alike show ±{unchanged:.2g} points",
                fix,
            )


def examples_out_of_reach(gate: AccuracyLimits | None, examples: int) -> list[tuple[str, str]]:
    """Reason and fix if so few golden examples of a handler cannot show `gates.accuracy.min`."""
    fix = "add examples, or choose a limit that so few can show"
    return [] if gate is None else list(min_out_of_reach(gate, examples, "example", fix))


def min_out_of_reach(gate: AccuracyLimits, rows: int, noun: str, fix: str) -> Iterator[tuple[str, str]]:
    """Reason and fix if a model that has all `rows` right misses `gates.accuracy.min`."""
    best = intervals.proportion(rows, rows, gate.confidence).low
    if gate.min is not None and gate.min > best:
        yield (
            f"`gates.accuracy.min` is {gate.min}, which {counted(rows, noun)} cannot show: "
            f"all of them right show {best:.3f}",
            fix,
        )


def _unseen(gate: AccuracyLimits, answers: Sequence[Any], labels: Sequence[str]) -> list[tuple[str, str]]:
    asked: set[str] = set()
    if gate.metric == metrics.MACRO_F1:
        asked.update(labels)
    if gate.metric == metrics.F1 and len(labels) == 2:
        asked.add(metrics.positive_label(labels, answers))
    for floors in gate.floors().values():
        asked.update(labels if floors.every is not None else floors.named)
    seen = {name for answer in answers for name in metrics.classes_of(answer)} if asked else set()
    unseen = sorted(asked - seen)
    if not unseen:
        return []
    more = f" and {len(unseen) - _SHOWN} more" if len(unseen) > _SHOWN else ""
    names = ", ".join(map(repr, unseen[:_SHOWN]))
    reason = f"`gates.accuracy` asks for figures of {names}{more}, and no test row has such a label: they are unknown"
    return [(reason, "add test rows of every label")]
