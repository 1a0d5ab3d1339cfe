"""Widths of the intervals that accuracy gates get from the test rows, and labels without test rows.

Gates are measured on the golden rows: the test rows, or a sample of them where there are more than `MOST_GATED_ROWS`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from edgepack.artifacts import Row
from edgepack.messages import message
from edgepack.recipe.gates import GoldenRows
from edgepack_runtime.schema.gates import AccuracyLimits
from edgepack_runtime.stats import intervals, metrics

MOST_GATED_ROWS: Final = GoldenRows().rows  # default of the recipe
SUGGESTED_DROPS: Final = (1.0, 2.0, 3.0, 5.0)  # points that a draft suggests
_ASSUMED_ACCURACY: Final = 0.9  # for the widths that are shown
_CHANGED_SHARE: Final = 0.01  # of answers, which INT8 changes; half of them to right ones
_MOST_NAMES: Final = 3


def half_width(rows: int, confidence: float) -> float:
    """Half width, in points, of the interval of an accuracy of 90 % on so many rows."""
    interval = intervals.proportion(_ASSUMED_ACCURACY * rows, rows, confidence)
    return 50 * (interval.high - interval.low)


def drop_half_width(rows: int, confidence: float) -> float:
    """Half width, in points, of the interval of a drop if 1 % of the answers change: half each way, at least one."""
    changed_each_way = max(1.0, _CHANGED_SHARE / 2 * rows)
    return 100 * intervals.paired_drop(changed_each_way, changed_each_way, max(rows, 2), confidence).high


def suggested_drop(rows: int, confidence: float) -> float | None:
    """The smallest of SUGGESTED_DROPS, in points, of which `drop_half_width` is at most half; None if there is none.

    A model that loses nothing then passes, and one at the limit is inconclusive.
    """
    width = drop_half_width(rows, confidence)
    return next((points for points in SUGGESTED_DROPS if width <= points / 2), None)


def rows_for_drop(confidence: float) -> int:
    """The fewest rows for which `suggested_drop` finds a limit."""
    found = intervals.first_number(lambda rows: suggested_drop(rows, confidence) is not None, 0)
    assert found is not None, "enough rows show any limit"
    return found


def suggested_min(majority: float, rows: int, confidence: float) -> float:
    """The lowest `min` in whole percent above the score of the most frequent answer.

    With few rows it is lower: what a model without errors passes. More is not needed, since gates also ask for a model
    that is shown to be better than the most frequent answer, and on 30 to 300 rows no such model fails this `min`. More
    would fail good models: where the most frequent answer has 70 % of 30 rows, the high end of its interval as `min`
    fails 13 % of the models with an accuracy of 80 %. This `min` fails 0.02 % of them.

    Args:
        majority: score of the most frequent answer, 0 to 1.
        rows: number of golden rows.
    """
    above = math.floor(100 * majority + 1) / 100
    if not rows:
        return above
    passed_without_errors = math.ceil(100 * intervals.proportion(rows, rows, confidence).low - 1) / 100
    return min(above, passed_without_errors)


def rows_above_majority(majority: float, confidence: float, power: float) -> int:
    """Test rows that show a model with half the errors of the most frequent answer to be better than that answer.

    Tango's interval excludes a difference of 0 where the gain exceeds `normal(confidence) * sqrt(differ / rows)`
    (McNemar's test). The score of the most frequent answer is known, so the gain varies with the model's accuracy
    alone. Errors are taken not to depend on the label.

    Args:
        majority: share of the rows with the most frequent answer, above 0 and below 1.
        confidence: of the gate, 0 to 1.
        power: share of such models that are to be shown, 0.5 or more and below 1.
    """
    right = (1 + majority) / 2
    gain = right - majority
    differ = right * (1 - majority) + (1 - right) * majority  # share of rows that only one of the two has right
    z_confidence = intervals.normal(confidence)
    z_power = statistics.NormalDist().inv_cdf(power)
    return math.ceil(((z_confidence * math.sqrt(differ) + z_power * math.sqrt(right * (1 - right))) / gain) ** 2)


def check_majority(majority_rows: int, rows: int, confidence: float) -> Iterator[tuple[str, str]]:
    """Reason and fix if the rows would not prove most good models better than the most frequent answer.

    Args:
        majority_rows: rows with that answer.
        rows: number of golden rows.
    """
    if 0 < majority_rows < rows and rows < rows_above_majority(majority_rows / rows, confidence, 0.5):
        needed = rows_above_majority(majority_rows / rows, confidence, 0.8)
        share = majority_rows / rows
        yield (
            message("found.few_for_majority", rows=rows, share=share),
            message("found.label_more", needed=needed),
        )


def describe_gate(gate: AccuracyLimits, total: int, test: Iterable[Row], most: int = MOST_GATED_ROWS) -> str:
    """The widths of a gate's intervals, as one line.

    Args:
        total: number of test rows, at least 1.
        test: the test rows; read only for gates on classes.
        most: maximum number of golden rows.
    """
    rows = min(total, most)
    points = half_width(rows, gate.confidence)
    text = message("say.gate_width", rows=rows, points=points, share=_ASSUMED_ACCURACY)
    if gate.max_drop_points is not None or gate.max_regression_points is not None:
        text = message("say.gate_drop", text=text, points=drop_half_width(rows, gate.confidence))
    if gate.per_class is not None or gate.metric in (metrics.MACRO_F1, metrics.F1):
        rows_of = Counter(name for row in test for name in set(metrics.classes_of(row.label)))
        rarest = min(rows_of, key=lambda name: (rows_of[name], name), default=None)
        if rarest is not None:
            few = max(rows_of[rarest] * rows // total, 1)
            points = half_width(few, gate.confidence)
            text = message("say.gate_rarest", text=text, label=repr(rarest), n=few, points=points)
    return text


def check_gate(
    gate: AccuracyLimits, test: Iterable[Row], labels: Sequence[str], most: int = MOST_GATED_ROWS
) -> list[tuple[str, str]]:
    """Reason and fix of each limit that cannot pass, because test rows are too few, or have none of its labels.

    Args:
        most: maximum number of golden rows.
    """
    truths = [row.label for row in test]
    # Only how many golden rows there are limits what they can show; which labels they have, all test rows tell.
    return [*_out_of_reach(gate, truths[:most]), *_unseen(gate, truths, labels)]


def _out_of_reach(gate: AccuracyLimits, truths: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Limits that even a model without errors misses, and a most frequent answer that is hard to beat."""
    rows = len(truths)
    if not truths or isinstance(truths[0], float) or gate.metric not in (None, metrics.ACCURACY):
        return
    yield from check_majority(max(Counter(truths).values()), rows, gate.confidence)
    fix = message("found.add_test_rows")
    yield from min_out_of_reach(gate, rows, "found.golden_rows", fix)
    unchanged = 100 * intervals.paired_drop(0, 0, rows, gate.confidence).high
    for key in ("max_drop_points", "max_regression_points"):
        limit = getattr(gate, key)
        if limit is not None and limit < unchanged:
            yield message("found.drop_out_of_reach", key=key, limit=limit, rows=rows, points=unchanged), fix


def examples_out_of_reach(gate: AccuracyLimits | None, examples: int) -> list[tuple[str, str]]:
    """Reason and fix if so few golden examples of a handler cannot show `gates.accuracy.min`."""
    fix = message("found.add_examples")
    return [] if gate is None else list(min_out_of_reach(gate, examples, "found.examples", fix))


def min_out_of_reach(gate: AccuracyLimits, rows: int, noun: str, fix: str) -> Iterator[tuple[str, str]]:
    """Reason and fix if a model that has all `rows` right misses `gates.accuracy.min`. `noun` is a message."""
    best = intervals.proportion(rows, rows, gate.confidence).low
    if gate.min is not None and gate.min > best:
        yield message("found.min_out_of_reach", limit=gate.min, rows=message(noun, n=rows), best=best), fix


def _unseen(gate: AccuracyLimits, truths: Sequence[Any], labels: Sequence[str]) -> list[tuple[str, str]]:
    asked: set[str] = set()
    if gate.metric == metrics.MACRO_F1:
        asked.update(labels)
    if gate.metric == metrics.F1 and len(labels) == 2:
        asked.add(metrics.positive_label(labels, truths))
    for floors in gate.floors().values():
        asked.update(labels if floors.every is not None else floors.named)  # a floor of every class, or of some
    seen = {name for truth in truths for name in metrics.classes_of(truth)} if asked else set()
    unseen = sorted(asked - seen)
    if not unseen:
        return []
    names, more = list(map(repr, unseen[:_MOST_NAMES])), len(unseen) - _MOST_NAMES
    some = message("found.and_more", names=names, more=more) if more > 0 else message("found.some", names=names)
    return [(message("found.unseen_labels", names=some), message("found.add_every_label"))]
