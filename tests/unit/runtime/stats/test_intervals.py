from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.intervals import Interval


@pytest.mark.parametrize(  # R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_values(successes: int, n: int, low: float, high: float) -> None:
    interval = intervals.wilson(successes, n, 0.95)
    assert interval == pytest.approx((successes / n, low, high), abs=5e-5)
    assert intervals.wilson(10, 10, 0.95).high == 1.0
    assert intervals.wilson(0, 10, 0.95).low == 0.0


@pytest.mark.parametrize("interval", [intervals.wilson, intervals.clopper_pearson])
@pytest.mark.parametrize("arguments", [(0, 0), (1, 0), (0, -1), (3, 2), (-1, 2), (-0.5, 2)])
def test_impossible_counts_have_no_interval(interval: Callable[..., Any], arguments: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match="successes of"):
        interval(*arguments, 0.95)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        intervals.wilson(1, 2, confidence)


def at_least(successes: int, n: int, rate: float) -> float:
    """How often at least so many of `n` succeed at a true `rate`."""
    return math.fsum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(successes, n + 1))


@pytest.mark.parametrize(("successes", "n"), [(1, 1), (3, 10), (9, 10), (199, 200), (120, 200), (1, 300)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_exact_interval_is_what_it_is_defined_as(successes: int, n: int, confidence: float) -> None:
    interval = intervals.clopper_pearson(successes, n, confidence)
    tail = (1 - confidence) / 2
    assert at_least(successes, n, interval.low) == pytest.approx(tail, rel=1e-9)
    if successes < n:
        assert 1 - at_least(successes + 1, n, interval.high) == pytest.approx(tail, rel=1e-9)
    assert interval.value == successes / n


def test_the_exact_interval_reaches_the_ends() -> None:
    assert intervals.clopper_pearson(0, 10, 0.95) == pytest.approx((0, 0, 1 - 0.025**0.1))
    assert intervals.clopper_pearson(10, 10, 0.95) == pytest.approx((1, 0.025**0.1, 1))


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.floats(0, n), st.just(n))))
def test_a_proportion_reaches_as_far_as_either_interval(counts: tuple[float, int]) -> None:
    found, score, exact = (
        one(*counts, 0.95) for one in (intervals.proportion, intervals.wilson, intervals.clopper_pearson)
    )
    assert 0 <= found.low <= min(score.low, exact.low) <= found.value <= max(score.high, exact.high) <= found.high <= 1


@pytest.mark.parametrize("n", [50, 500, 1200])
@pytest.mark.parametrize("limit", [0.6, 0.88, 0.95, 0.99, 0.998])
def test_a_model_at_the_limit_is_passed_and_failed_no_more_often_than_allowed(n: int, limit: float) -> None:
    """Exactly, from the probability of every outcome: 2.5 % of the cases each at 95 %."""
    passed = failed = 0.0
    for right in range(n + 1):
        log = math.lgamma(n + 1) - math.lgamma(right + 1) - math.lgamma(n - right + 1)
        probability = math.exp(log + right * math.log(limit) + (n - right) * math.log1p(-limit))
        if probability > 1e-12:
            interval = intervals.proportion(right, n, 0.95)
            passed += probability * (interval.low >= limit)
            failed += probability * (interval.high < limit)
    assert passed <= 0.025
    assert failed <= 0.025


def test_paired_drop_gives_the_published_values() -> None:
    # M. W. Fagerland, S. Lydersen, P. Laake, Statistics in Medicine 33 (2014) 2850-2875: 1 and 7 discordant of 21.
    assert intervals.paired_drop(1, 7, 21, 0.95) == pytest.approx((-6 / 21, -0.517, -0.026), abs=5e-4)
    interval = intervals.paired_drop(0, 0, 1000, 0.95)  # without discordant rows it is still uncertain
    z2 = 1.959964**2
    assert interval == pytest.approx((0, -z2 / (1000 + z2), z2 / (1000 + z2)), rel=1e-4)  # Tango's closed form


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))))
def test_paired_drop_is_antisymmetric_and_holds_the_estimate(counts: tuple[int, int, int]) -> None:
    lost, won, n = counts
    if lost + won > n:
        with pytest.raises(ValueError):
            intervals.paired_drop(lost, won, n, 0.95)
        return
    interval = intervals.paired_drop(lost, won, n, 0.95)
    other = intervals.paired_drop(won, lost, n, 0.95)
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert other == pytest.approx((-interval.value, -interval.high, -interval.low), abs=1e-9)


def outcomes(n: int, lost_rate: float, won_rate: float) -> Iterator[tuple[int, int, float]]:
    """Every likely (lost, won) with its probability."""
    most = math.ceil(n * (lost_rate + won_rate) + 8 * math.sqrt(n * (lost_rate + won_rate)) + 12)
    for lost in range(most):
        for won in range(most - lost):
            rest = n - lost - won
            log = math.lgamma(n + 1) - math.lgamma(lost + 1) - math.lgamma(won + 1) - math.lgamma(rest + 1)
            log += lost * math.log(lost_rate) + won * math.log(won_rate) + rest * math.log1p(-lost_rate - won_rate)
            if log > -16:
                yield lost, won, math.exp(log)


@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize(
    ("lost", "won"), [(3, 1e-9), (3.9, 1e-9), (6, 1e-9), (4.5, 0.5), (5, 1), (5, 2), (10, 4), (12, 10)]
)
def test_paired_drop_covers_the_truth_as_often_as_it_says(n: int, lost: float, won: float) -> None:
    """Exact coverage, each side by itself: 2.5 % are allowed, and a handful of discordant rows fail in up to 5.4 %."""
    truth = (lost - won) / n
    too_low = too_high = 0.0
    for seen_lost, seen_won, probability in outcomes(n, lost / n, won / n):
        interval = intervals.paired_drop(seen_lost, seen_won, n, 0.95)
        too_low += probability * (interval.high < truth)
        too_high += probability * (interval.low > truth)
    assert too_low <= 0.026, "passed wrongly"
    assert too_high <= 0.054, "failed wrongly"


@pytest.mark.parametrize("counts", [(0, 0, 0), (-1, 2, 4), (2, -1, 4), (3, 2, 4)])
def test_impossible_discordant_rows_have_no_drop(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="discordant rows of"):
        intervals.paired_drop(*counts, 0.95)


@pytest.mark.parametrize(("fraction", "least"), [(0.5, 11), (0.8, 31), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_percentiles_need_the_samples_of_mlperf(fraction: float, least: int) -> None:
    assert intervals.n_for_percentile(fraction, 0.98) == least
    # As defined: with one sample fewer the second largest bounds the percentile too seldom.
    missed = [at_least(n - 1, n, fraction) for n in (least, least - 1)]
    assert missed[0] <= 0.01 < missed[1]


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("confidence", [0.6, 0.8, 0.95])
def test_the_ends_of_a_percentile_are_the_order_statistics_of_the_definition(
    fraction: float, confidence: float
) -> None:
    tail = (1 - confidence) / 2
    for n in range(1, 60):
        low = max((r for r in range(1, n + 1) if 1 - at_least(r, n, fraction) <= tail), default=0)
        high = min((s for s in range(1, n + 1) if at_least(s, n, fraction) <= tail), default=math.inf)
        found = intervals.percentile_interval(range(1, n + 1), fraction, confidence)
        assert (found.low, found.high) == (low, high)


def test_a_percentile_of_few_samples_is_unbounded() -> None:
    assert intervals.percentile_interval(range(1, 101), 0.5, 0.95) == (50, 40, 61)
    assert intervals.percentile_interval([1.0, 2.0, 3.0], 0.95, 0.95).high == math.inf
    assert intervals.percentile_interval([1.0, 2.0, 3.0], 0.05, 0.95).low == 0.0
    with pytest.raises(ValueError):
        intervals.percentile_interval([], 0.5, 0.95)


@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_a_percentile_is_covered_as_often_as_it_says(fraction: float) -> None:
    source = random.Random(7)
    truth = -math.log(1 - fraction)  # of the exponential distribution
    misses = [0, 0]
    for _ in range(1500):
        interval = intervals.percentile_interval([source.expovariate(1) for _ in range(150)], fraction, 0.9)
        misses[0] += interval.high < truth
        misses[1] += interval.low > truth
    assert all(0.01 * 1500 < count < 0.07 * 1500 for count in misses)  # 5 % at most on each side, and not for free


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99]))
def test_a_percentile_lies_in_its_interval(samples: list[float], fraction: float) -> None:
    interval = intervals.percentile_interval(samples, fraction, 0.95)
    assert interval.low <= interval.value <= interval.high
    assert sum(sample <= interval.value for sample in samples) >= fraction * len(samples) - 1e-6


def test_verdicts_follow_from_the_interval_and_overall_is_the_worst() -> None:
    at_least = [intervals.verdict_at_least(Interval(0.9, 0.88, 0.92), limit) for limit in (0.87, 0.88, 0.9, 0.92, 0.93)]
    assert at_least == ["pass", "pass", "inconclusive", "inconclusive", "fail"]
    at_most = [intervals.verdict_at_most(Interval(5, 4, 6), limit) for limit in (3, 4, 5, 6, 7)]
    assert at_most == ["fail", "inconclusive", "inconclusive", "pass", "pass"]
    assert intervals.verdict_at_most(Interval(5, 4, math.inf), 1e9) == "inconclusive"
    assert intervals.overall([]) == "pass"
    assert intervals.overall(["pass", "inconclusive"]) == "inconclusive"
    assert intervals.overall(["inconclusive", "fail", "pass"]) == "fail"


def test_the_ends_of_a_proportion_may_have_confidences_of_their_own() -> None:
    found = intervals.proportion_between(30, 40, 0.9, 0.99)
    assert found == (0.75, intervals.proportion(30, 40, 0.9).low, intervals.proportion(30, 40, 0.99).high)


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 99), st.sampled_from([0.95, 0.9995]))
def test_more_rows_than_did_not_decide_are_asked_for(right: int, wrong: int, limit: int, to_fail: float) -> None:
    n = right + wrong
    if n == 0:
        return
    there = intervals.verdict_at_least(intervals.proportion_between(right, n, 0.95, to_fail), limit / 100)
    needed = intervals.n_for_proportion(right / n, limit / 100, 0.95, to_fail=to_fail, beyond=n)
    if there == "inconclusive" and needed is not None:
        assert needed > n
        found = intervals.proportion_between(right / n * needed, needed, 0.95, to_fail)
        assert intervals.verdict_at_least(found, limit / 100) != "inconclusive"


@given(st.integers(1, 99), st.integers(1, 99))
def test_so_many_rows_decide_and_a_tenth_fewer_do_not(observed: int, limit: int) -> None:
    n = intervals.n_for_proportion(observed / 100, limit / 100, 0.95)
    if observed == limit:
        assert n is None
        return
    assert n is not None

    def verdict(rows: int) -> str:
        rows -= rows % 100  # so that `observed` percent of them is a whole number
        return intervals.verdict_at_least(intervals.proportion(observed * rows // 100, rows, 0.95), limit / 100)

    assert verdict(n + 100) != "inconclusive"
    if n * 0.9 >= 100:
        assert verdict(int(n * 0.9)) == "inconclusive"


def test_so_many_rows_decide_a_drop() -> None:
    n = intervals.n_for_drop(5, 2, 500, 0.01, 0.95)
    assert n is not None and n > 500
    for rows, verdict in ((n, "pass"), (n - 1, "inconclusive")):
        interval = intervals.paired_drop(5 * rows / 500, 2 * rows / 500, rows, 0.95)
        assert intervals.verdict_at_most(interval, 0.01) == verdict
    assert intervals.n_for_drop(7, 2, 500, 0.01, 0.95) is None  # the drop is the limit itself


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
