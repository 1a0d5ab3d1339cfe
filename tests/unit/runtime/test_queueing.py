"""Queues whose latency is known: by a formula, by answering millions of texts, or because nobody waits."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from edgepack_runtime import queueing, stats
from edgepack_runtime.queueing import Work

QUIET_HOURS = 1e-3  # texts a second: nobody meets another


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "RESAMPLES", 200)


def values(work: Work, rate_per_s: float, *fractions: float) -> list[float]:
    return queueing.percentiles(work, rate_per_s, fractions)


def answered(rate_per_s: float, idle_ms: np.ndarray, busy_ms: np.ndarray, seed: int = 0) -> list[float]:
    """Latencies in ms of texts that arrive at random; each takes a time of its own kind."""
    draw = np.random.RandomState(seed)
    gaps = draw.exponential(1e3 / rate_per_s, len(idle_ms))
    free = due = 0.0
    found = []
    for gap, idle, busy in zip(gaps, idle_ms, busy_ms, strict=True):
        due += gap
        free = due + idle if due >= free else free + busy
        found.append(free - due)
    return sorted(found)


@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.8, 0.89])
def test_exponential_work_is_answered_as_the_formula_says(utilisation: float) -> None:
    """M/M/1: latency is exponential with the rate (1 - utilisation) / mean work."""
    mean_ms, n = 10.0, 20_000
    times = [-mean_ms * math.log(1 - (place + 0.5) / n) for place in range(n)]
    expected = [-mean_ms / (1 - utilisation) * math.log(1 - part) for part in (0.5, 0.95, 0.99)]
    found = values(Work(times, times), 1e3 * utilisation / mean_ms, 0.5, 0.95, 0.99)
    assert found == pytest.approx(expected, rel=0.01)


def test_work_that_always_takes_the_same() -> None:
    """M/D/1 at 50 %: half of the texts find nobody, and 1.5 of the work is through by 0.5 exp(0.25) (Crommelin)."""
    work = Work([10.0], [10.0])
    [half] = values(work, 50.0, 0.4999)
    assert half == pytest.approx(10.0, rel=0.01)
    [later] = values(work, 50.0, 0.5 * math.exp(0.25))
    assert later == pytest.approx(15.0, rel=0.01)


@pytest.mark.parametrize("rate_per_s", [20.0, 60.0])
def test_the_first_text_after_an_idle_moment_may_take_longer(rate_per_s: float) -> None:
    draw = np.random.RandomState(1)
    idle, busy = draw.lognormal(3.0, 0.3, 400_000), draw.lognormal(2.2, 0.5, 400_000)
    latencies = answered(rate_per_s, idle, busy)
    found = values(Work(list(idle[:50_000]), list(busy[:50_000])), rate_per_s, 0.5, 0.95)
    assert found == pytest.approx([stats.percentile(latencies, part) for part in (0.5, 0.95)], rel=0.02)


def test_where_nobody_waits_the_ends_are_order_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "RESAMPLES", 2000)
    source = random.Random(3)
    times = [source.lognormvariate(2, 0.5) for _ in range(400)]
    [found] = queueing.intervals(Work(times, []), Work(times, []), Work(times, []), QUIET_HOURS, [0.95], 0.98)
    exact = stats.percentile_interval(times, 0.95, 0.98)
    ordered = sorted(times)
    near = [[ordered.index(end) + step for step in (-1, 0, 1)] for end in exact]
    for end, places in zip(found, near, strict=True):
        assert ordered[places[0]] * 0.995 <= end <= ordered[places[-1]] * 1.005


def test_more_than_can_be_answered_takes_for_ever() -> None:
    work, less = Work([10.0] * 50, [10.0] * 50), Work([1.0] * 50, [1.0] * 50)
    [found] = queueing.intervals(work, work, less, 101.0, [0.5], 0.98)
    assert math.isinf(found.value)
    assert math.isinf(found.high)
    assert found.low == pytest.approx(1.0, rel=0.1)


def test_few_times_of_one_kind_count_for_the_careful_side_alone() -> None:
    """Of three texts that waited nobody knows whether they were lucky."""
    work = Work([20.0] * 200, [1.0] * 3)
    [found] = queueing.intervals(work, work, work, 10.0, [0.95], 0.98)
    [lucky] = values(Work([20.0] * 200, [1.0] * 100), 10.0, 0.95)
    [same] = values(Work([20.0] * 200, [20.0] * 100), 10.0, 0.95)
    assert found.low == pytest.approx(lucky, rel=0.05)
    assert found.high >= 0.95 * same > 1.2 * lucky


def test_what_others_may_have_taken_lowers_the_low_end_alone() -> None:
    source = random.Random(5)
    times = [source.lognormvariate(2, 0.5) for _ in range(300)]
    whole, less = Work(times, times), Work([ms / 2 for ms in times], [ms / 2 for ms in times])
    [alone] = queueing.intervals(whole, whole, whole, 60.0, [0.95], 0.98)
    [beside] = queueing.intervals(whole, whole, less, 60.0, [0.95], 0.98)
    assert beside.low < alone.low
    assert (beside.value, beside.high) == (alone.value, alone.high)
    assert alone.value == values(whole, 60.0, 0.95)[0]


@pytest.mark.parametrize(
    "kinds", [([0.0] * 200, []), ([], [0.0] * 200), ([0.0] * 200, [9.0] * 40), ([9.0] * 200, [0.0] * 4)]
)
def test_others_may_have_taken_all_of_a_kind(kinds: tuple[list[float], list[float]]) -> None:
    whole = Work([10.0] * 200, [10.0] * 50)
    [found] = queueing.intervals(whole, whole, Work(*kinds), 60.0, [0.95], 0.98)
    [alone] = queueing.intervals(whole, whole, whole, 60.0, [0.95], 0.98)
    assert 0 <= found.low <= alone.low * 1.01
    assert found.high == alone.high
    if not any(map(any, kinds)):
        assert found.low < 1e-3


def test_no_times_are_no_queue() -> None:
    with pytest.raises(ValueError, match="no times of work"):
        queueing.intervals(Work([], []), Work([], []), Work([], []), 10.0, [0.95], 0.98)


@pytest.mark.parametrize("rate_per_s", [5.0, 50.0, 90.0])
def test_the_grid_errs_on_the_careful_side(rate_per_s: float) -> None:
    """Where all texts take the same there is nothing to resample: the ends are what the grid makes of the value."""
    work = Work([10.0] * 60, [10.0] * 60)
    [found] = queueing.intervals(work, work, work, rate_per_s, [0.95], 0.98)
    assert found.low < found.value < found.high
    assert found.high / found.low < 1.05


def test_the_high_end_is_of_the_longest_times_and_the_low_end_of_the_shortest() -> None:
    short, work, long = (Work([ms] * 60, [ms] * 60) for ms in (5.0, 10.0, 15.0))
    [found] = queueing.intervals(work, long, short, 50.0, [0.95], 0.98)
    [alone] = queueing.intervals(work, work, work, 50.0, [0.95], 0.98)
    assert found.value == alone.value
    assert found.high == pytest.approx(values(long, 50.0, 0.95)[0], rel=0.02)
    assert found.low == pytest.approx(values(short, 50.0, 0.95)[0], rel=0.02)
