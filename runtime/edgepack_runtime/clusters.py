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
    """How many units are worth an independent one, at least 1: exactly that where no row has two.

    The larger of two figures, both with one row more that is wrong as a whole and as large as that of a unit drawn at
    random: where next to nothing is wrong it is as if units of a row always failed together.

    - 1 + (size - 1) x correlation, with the size of that row. The correlation follows from how often the fellow of a
      wrong unit, in its row, is wrong as well. Where few rows fail, these may happen to be small ones: that does not
      change it.
    - The variance of the share of wrong ones between rows against between units. Where large rows are worse than small
      ones, as texts that are cut, fellows alone do not tell.

    Args:
        rows: how many rows there are of each kind.
    """
    units = sum(row.units * count for row, count in rows.items())
    size = sum(row.units**2 * count for row, count in rows.items()) / max(units, 1)
    if size <= 1:
        return 1.0
    share = sum(row.wrong * count for row, count in rows.items()) / units
    return max(_by_fellows(rows, share, size), _by_variance(rows, units, share, size), 1.0)


def _by_fellows(rows: Mapping[Row, int], share: float, size: float) -> float:
    if share >= 1:
        return size
    several = [(row, count) for row, count in rows.items() if row.units > 1]
    wrong = size + math.fsum(row.wrong * count for row, count in several)
    fellows = size + math.fsum(row.wrong * (row.wrong - 1) / (row.units - 1) * count for row, count in several)
    correlation = (fellows / wrong - share) / (1 - share)
    return 1 + (size - 1) * max(correlation, 0.0)


def _by_variance(rows: Mapping[Row, int], units: int, share: float, size: float) -> float:
    between_rows = size + math.fsum((row.wrong - share * row.units) ** 2 * count for row, count in rows.items())
    between_units = 1 + units * share * (1 - share)
    return between_rows / between_units
