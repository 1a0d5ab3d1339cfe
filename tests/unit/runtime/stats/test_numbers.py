"""Metrics of numbers, against SciPy and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from edgepack_runtime.stats import numbers
from edgepack_runtime.stats.metrics import MAE, NUMBER_METRICS, PEARSON, SPEARMAN

grades = st.integers(0, 5).map(float)
rows = st.lists(st.tuples(grades, st.floats(-10, 10, width=32)), min_size=4, max_size=60)


def drawn(seed: int, n: int, noise: float, apart: float) -> tuple[list[float], list[float], list[float]]:
    """Truths, and the answers of two models whose errors are mostly the same."""
    source = np.random.default_rng(seed)
    truths, errors = source.normal(size=n), noise * source.normal(size=n)
    return truths.tolist(), (truths + errors).tolist(), (truths + errors + apart * source.normal(size=n)).tolist()


@given(rows)
def test_values_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    truths, answers = map(list, zip(*pairs, strict=True))
    found = numbers.values(pairs)
    assert found[MAE] == pytest.approx(np.abs(np.array(truths) - answers).mean())
    assert numbers.ranks(answers) == stats.rankdata(answers).tolist()
    if len(set(truths)) > 1 and np.std(answers) > 1e-3:
        assert found[SPEARMAN] == pytest.approx(stats.spearmanr(truths, answers)[0], abs=1e-9)
        assert found[PEARSON] == pytest.approx(stats.pearsonr(truths, answers)[0], abs=1e-6)


def test_the_same_answer_to_every_row_correlates_with_nothing() -> None:
    truths, constant = [float(place) for place in range(12)], [2.0] * 12
    answers = [truth + place % 3 for place, truth in enumerate(truths)]
    for metric in (SPEARMAN, PEARSON):
        assert numbers.interval(metric, truths, constant, 0.95) == (0.0, 0.0, 0.0)
        gain, own = (
            numbers.drop(metric, truths, answers, constant, 0.95),
            numbers.interval(metric, truths, answers, 0.95),
        )
        assert gain == pytest.approx(own)  # over an answer that needs no learning


@pytest.mark.parametrize("metric", NUMBER_METRICS)
def test_an_interval_holds_its_value_and_shrinks_with_the_rows(metric: str) -> None:
    widths = []
    for n in (30, 300, 3000):
        truths, answers, others = drawn(1, n, 0.7, 0.3)
        for found in (
            numbers.interval(metric, truths, answers, 0.95),
            numbers.drop(metric, truths, answers, others, 0.95),
        ):
            assert found.low < found.value < found.high
        widths.append(found.high - found.low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


@pytest.mark.parametrize("metric", NUMBER_METRICS)
def test_equal_models_lose_nothing_and_a_worse_one_is_shown(metric: str) -> None:
    truths, answers, others = drawn(2, 400, 0.5, 0.8)
    assert numbers.drop(metric, truths, answers, answers, 0.95) == (0.0, 0.0, 0.0)
    assert numbers.drop(metric, truths, answers, others, 0.95).low > 0
    assert numbers.drop(metric, truths, others, answers, 0.95).high < 0


@given(st.lists(st.tuples(grades, st.integers(0, 9).map(float)), min_size=5, max_size=20))
def test_an_influence_is_the_derivative_by_a_rows_weight(pairs: list[tuple[float, float]]) -> None:
    truths, answers = map(np.array, zip(*pairs, strict=True))
    if len(set(truths)) < 2 or len(set(answers)) < 2:
        return

    def weighted(metric: str, weights: np.ndarray) -> float:
        weights = weights / weights.sum()

        def of(values: np.ndarray) -> np.ndarray:
            if metric == PEARSON:
                return values
            below = (weights * (values[None, :] < values[:, None])).sum(axis=1)
            return below + (weights * (values[None, :] == values[:, None])).sum(axis=1) / 2

        x, y = of(truths), of(answers)
        x, y = x - (weights * x).sum(), y - (weights * y).sum()
        size = math.sqrt((weights * x * x).sum() * (weights * y * y).sum())
        return float((weights * x * y).sum() / size)

    n, step = len(pairs), 1e-6
    for metric in (SPEARMAN, PEARSON):
        found = numbers.influence(metric, truths.tolist(), answers.tolist())
        for row in range(n):
            more, less = np.ones(n), np.ones(n)
            more[row], less[row] = 1 + step, 1 - step
            slope = n * (weighted(metric, more) - weighted(metric, less)) / (2 * step)
            assert found[row] == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize(("confidence", "freedom"), [(0.95, 1), (0.9, 4), (0.95, 30), (0.999, 2000)])
def test_students_t_is_that_of_scipy(confidence: float, freedom: int) -> None:
    assert numbers.student_t(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom))


def test_few_rows_say_little() -> None:
    assert numbers.interval(SPEARMAN, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.95) == pytest.approx((1.0, -1.0, 1.0))
    assert numbers.drop(SPEARMAN, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], 0.95)[1:] == (-2.0, 2.0)
    assert numbers.interval(MAE, [1.0], [3.0], 0.95) == (2.0, 0.0, 2e9)


@pytest.mark.parametrize("metric", [SPEARMAN, PEARSON])
@pytest.mark.parametrize(("n", "rare"), [(12, 12), (100, 1), (300, 1), (100, 5), (300, 300)])
def test_noise_is_hardly_ever_shown_to_beat_a_constant(metric: str, n: int, rare: int) -> None:
    """One row of 300 that is not 0 may correlate with anything: it tells as little as one row."""
    source, passed = np.random.default_rng(n + rare), 0
    for _ in range(200):
        truths = np.zeros(n)
        truths[source.choice(n, rare, replace=False)] = source.uniform(1, 5, rare)
        constant = [float(np.median(truths))] * n
        gain = numbers.drop(metric, truths.tolist(), constant, source.normal(size=n).tolist(), 0.95)
        passed += gain.high < 0
    assert passed <= 9  # 2.5 % are 5


def test_one_row_far_from_the_others_shows_nothing_of_an_error() -> None:
    truths, answers = [0.0] * 200, [0.0] * 199 + [1e6]
    found = numbers.interval(MAE, truths, answers, 0.95)
    assert found.low == 0 and found.high > 5e4  # ten times its value


@pytest.mark.parametrize(("truths", "answers"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_are_no_rows_is_an_error(truths: list[float], answers: list[float]) -> None:
    with pytest.raises(ValueError, match="answers for"):
        numbers.interval(MAE, truths, answers, 0.95)
    with pytest.raises(ValueError, match="unknown metric"):
        numbers.drop("accuracy", [1.0], [1.0], [1.0], 0.95)


@pytest.mark.sweep
@pytest.mark.parametrize("metric", NUMBER_METRICS)
@pytest.mark.parametrize(("n", "apart"), [(50, 0.5), (300, 0.05), (300, 0.5)])
def test_intervals_cover_the_truth(metric: str, n: int, apart: float) -> None:
    whole = drawn(0, 200_000, 0.7, apart)
    truth = numbers.values(list(zip(whole[0], whole[1], strict=True)))[metric]
    other = numbers.values(list(zip(whole[0], whole[2], strict=True)))[metric]
    lost = other - truth if metric == MAE else truth - other
    covered = np.zeros(2)
    for seed in range(1, 1001):
        truths, answers, others = drawn(seed, n, 0.7, apart)
        one = numbers.interval(metric, truths, answers, 0.95)
        two = numbers.drop(metric, truths, answers, others, 0.95)
        covered += [one.low <= truth <= one.high, two.low <= lost <= two.high]
    assert (covered > 920).all()
