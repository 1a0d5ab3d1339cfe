"""Phases that are there and phases that are not."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack_runtime import phases


def test_times_in_an_order_that_is_drawn_have_none() -> None:
    found = 0
    for seed in range(200):
        draw = np.random.RandomState(seed)
        found += phases.find(draw.lognormal(0, 0.6, 300)) is not None
    assert found <= 21  # 5 % by chance; more have a chance of 1 in 1,000


@pytest.mark.parametrize("length", [20, 60, 150])
def test_a_slow_phase_is_found_with_about_its_length(length: int) -> None:
    draw = np.random.RandomState(1)
    times = draw.lognormal(0, 0.1, 1000)
    times[333 : 333 + length] *= 1.5
    found = phases.find(times)
    assert found is not None
    assert found.slowest * times.mean() == pytest.approx(1.5, rel=0.07)
    assert found.fastest * times.mean() == pytest.approx(1.0, rel=0.07)
    assert length / 4 <= found.texts <= 2 * length


def test_one_slow_text_is_no_phase() -> None:
    times = np.random.RandomState(1).lognormal(0, 0.1, 1000)
    times[500] *= 50
    assert phases.find(times) is None


@pytest.mark.parametrize("times", [[], [1.0], [1.0] * 500, [0.0] * 500, [1.0, 2.0] * 15])
def test_few_times_or_equal_ones_have_none(times: list[float]) -> None:
    assert phases.find(times) is None


def test_what_comes_together_is_worth_less() -> None:
    draw = np.random.RandomState(4)
    alone = [phases.design_effect(draw.random_sample(1000) < 0.1, 0.98) for _ in range(50)]
    together = [phases.design_effect(np.repeat(draw.random_sample(50) < 0.1, 20), 0.98) for _ in range(50)]
    assert 1.0 <= np.median(alone) < 3.0 and 10.0 < np.median(together) < 60.0
    assert phases.design_effect([False] * 100, 0.98) == phases.design_effect([True] * 100, 0.98) == 1.0
    assert phases.design_effect([], 0.98) == 1.0


def test_a_machine_that_is_in_one_phase_throughout_is_as_slow_as_in_that() -> None:
    draw = np.random.RandomState(2)
    alone = draw.lognormal(0, 0.3, 1000)
    times = alone.copy()
    times[400:600] *= 2
    found = phases.find(times)
    assert found is not None
    slow, fast = (phases.throughout(times, found, level) for level in (found.slowest, found.fastest))
    assert np.mean(slow) == pytest.approx(found.slowest * times.mean(), rel=0.02)
    assert np.mean(fast) == pytest.approx(found.fastest * times.mean(), rel=0.02)
    assert np.mean(slow) >= 1.95 * alone.mean() and np.mean(fast) <= 1.02 * alone.mean()
    assert np.std(slow) / np.mean(slow) == pytest.approx(0.3, rel=0.15), "no phase is left in it"


@pytest.mark.parametrize("slow", [0.3, 0.6, 0.85])
def test_how_slow_a_machine_was_is_told_from_texts_that_were_slow_both_times_too(slow: float) -> None:
    """300 texts, twice; half as slow again for that share of the time, about as long in each order of theirs."""
    draw = np.random.RandomState(5)
    alone_ms = draw.lognormal(1, 0.3, 300)
    texts = np.concatenate([draw.permutation(300), draw.permutation(300)])  # (600,)
    pace = np.ones(600)
    for begin in (0, 300):
        pace[begin + 20 : begin + 20 + int(300 * slow)] = 1.5
    times_ms = alone_ms[texts] * pace * draw.lognormal(0, 0.03, 600)
    beside_others = phases.against_others(times_ms, texts)
    found = phases.find(beside_others)
    assert found is not None
    course = phases.told_apart(times_ms, texts, found)
    assert course.phases.slowest / course.phases.fastest == pytest.approx(1.55, abs=0.1)
    told, before = (np.corrcoef(np.log(one), np.log(pace))[0, 1] for one in (course.slowness, beside_others))
    assert told > 0.97 and before < 0.8, "beside its other time alone a text tells much less"


def test_texts_are_compared_with_themselves_whatever_their_place_in_an_order() -> None:
    """Text 0 takes 1 ms, text 1 takes 2 ms and text 2, which is there twice, 3 ms; the second half is half as fast."""
    texts = [0, 1, 2, 2, 2, 0, 2, 1]
    times_ms = [pace * (text + 1) for text, pace in zip(texts, [1, 1, 1, 1, 2, 2, 2, 2], strict=True)]
    assert phases.against_others(times_ms, texts) == pytest.approx([2**-0.5] * 4 + [2**0.5] * 4)
    assert phases.against_others([0.0, 5.0], [0, 3]) == pytest.approx([1.0, 1.0])
