"""Against tables that are in every book, and against each other."""

from __future__ import annotations

import math

import pytest

from edgepack_runtime.stats import intervals


def test_the_normal_distribution_is_that_of_the_tables() -> None:
    assert intervals.normal(0.95) == pytest.approx(1.959964)
    with pytest.raises(ValueError, match="confidence 1"):
        intervals.normal(1)


def test_shares_of_the_beta_distribution_are_sums_of_the_binomial_one() -> None:
    """P(X >= k) of n with p is the share of Beta(k, n - k + 1) below p."""
    n, k, p = 40, 31, 0.7
    tail = sum(math.exp(intervals.log_binomial(n, one, p)) for one in range(k, n + 1))
    assert intervals.beta_share(p, k, n - k + 1) == pytest.approx(tail, rel=1e-9)
    assert (intervals.beta_share(0.0, 2, 3), intervals.beta_share(1.0, 2, 3)) == (0.0, 1.0)


def test_a_root_lies_where_the_function_crosses_zero() -> None:
    assert intervals.root(lambda x: 2 - x * x, 0.0, 2.0) == pytest.approx(math.sqrt(2))
    assert intervals.root(lambda x: 1.0, 0.0, 2.0) == pytest.approx(2.0)
