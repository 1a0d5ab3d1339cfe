"""What units are worth that come together in rows: spans of one text, labels of one row (standard library only).

A text that a model misunderstands costs all its spans at once, so a hundred spans of thirty texts tell less than those
of a hundred. The design effect says how many such units are worth one that is independent of the others (L. Kish,
Survey Sampling (1965), 5.4); an interval for independent units then holds for as many fewer (E. L. Korn, B. I.
Graubard, Survey Methodology 24 (1998) 193-201).
"""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple


class Row(NamedTuple):
    """How many units a row has of something, and how many of them are wrong, or other than they were; never more."""

    units: int
    wrong: int


def design_effect(rows: Mapping[Row, int]) -> float:
    """How many units are worth an independent one: 1 + (size - 1) x correlation, exactly 1 where no row has two.

    Args:
        rows: how many rows there are of each kind.

    `size` is that of the row of a unit drawn at random. The correlation follows from how often the fellow of a wrong
    unit, in its row, is wrong as well, among those that were seen and one more row of that size which is wrong as a
    whole: where next to nothing is wrong it is as if units of a row always failed together. That looks at fellows and
    not at the variance of rows, since where few rows fail, these may happen to be small ones.
    """
    units = sum(row.units * count for row, count in rows.items())
    share = sum(row.wrong * count for row, count in rows.items()) / max(units, 1)
    size = sum(row.units**2 * count for row, count in rows.items()) / max(units, 1)
    if size <= 1 or share >= 1:
        return max(size, 1.0)
    several = [(row, count) for row, count in rows.items() if row.units > 1]
    wrong = size + math.fsum(row.wrong * count for row, count in several)
    fellows = size + math.fsum(row.wrong * (row.wrong - 1) / (row.units - 1) * count for row, count in several)
    correlation = (fellows / wrong - share) / (1 - share)
    return 1 + (size - 1) * max(correlation, 0.0)
