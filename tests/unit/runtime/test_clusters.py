"""What spans of one text are worth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime import clusters, stats
from edgepack_runtime.clusters import Row

KINDS = st.integers(1, 20).flatmap(lambda units: st.builds(Row, st.just(units), st.integers(0, units)))


@given(st.dictionaries(KINDS, st.integers(1, 50), max_size=8))
def test_a_unit_is_worth_no_more_than_itself_and_no_less_than_its_row(rows: dict[Row, int]) -> None:
    largest = max((row.units for row in rows), default=1)
    assert 1 <= clusters.design_effect(rows) <= largest + 1e-9


@given(st.integers(0, 500), st.integers(0, 500))
def test_units_that_are_alone_are_worth_themselves(right: int, wrong: int) -> None:
    assert clusters.design_effect({Row(1, 0): right, Row(1, 1): wrong}) == 1


def test_where_nothing_is_wrong_units_of_a_row_count_as_one() -> None:
    assert clusters.design_effect({Row(4, 0): 100}) == pytest.approx(4)
    assert clusters.design_effect({Row(4, 0): 90, Row(4, 4): 10}) == pytest.approx(4)
    assert clusters.design_effect({Row(4, 4): 10}) == pytest.approx(4)


def test_units_that_fail_by_themselves_are_worth_nearly_themselves() -> None:
    source = random.Random(1)
    rows: dict[Row, int] = {}
    for _ in range(2000):
        row = Row(4, sum(source.random() < 0.1 for _ in range(4)))
        rows[row] = rows.get(row, 0) + 1
    assert 1 <= clusters.design_effect(rows) < 1.15


@pytest.mark.parametrize("together", [0.1, 0.5, 1.0])
def test_an_interval_of_as_many_as_they_are_worth_is_as_seldom_wrong_as_it_says(together: float) -> None:
    """400 models of 90 %, whose spans may share their text's fate: 2.5 % may miss on either side."""
    below = above = naive = 0
    for seed in range(400):
        source = random.Random(seed)
        rows: dict[Row, int] = {}
        for _ in range(150):
            units, shared = source.choice((1, 1, 2, 3, 5, 8)), source.random() < 0.9
            good = sum(shared if source.random() < together else source.random() < 0.9 for _ in range(units))
            rows[Row(units, units - good)] = rows.get(Row(units, units - good), 0) + 1
        n = sum(row.units * count for row, count in rows.items())
        right = n - sum(row.wrong * count for row, count in rows.items())
        effect = clusters.design_effect(rows)
        found = stats.proportion(right / effect, n / effect, 0.95)
        below += found.high < 0.9
        above += found.low > 0.9
        alone = stats.proportion(right, n, 0.95)
        naive += not alone.low <= 0.9 <= alone.high
    assert below <= 18 and above <= 18  # a chance of 1 in 100 for rates of exactly 2.5 %
    assert together < 0.5 or naive > 50
