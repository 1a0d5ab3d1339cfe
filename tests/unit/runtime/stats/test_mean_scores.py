"""Means of scores between 0 and 1, and their drops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepack_runtime.stats import intervals, mean_scores

SCORES = st.floats(0, 1, allow_subnormal=False)
LISTS = st.lists(SCORES, min_size=1, max_size=12)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60), st.sampled_from([0.9, 0.95]))
def test_right_and_wrong_have_the_interval_of_a_proportion(found: list[float], confidence: float) -> None:
    assert mean_scores.mean(found, confidence) == intervals.proportion(sum(found), len(found), confidence)


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 1])), min_size=1, max_size=60))
def test_drops_of_right_and_wrong_are_those_of_pairs(pairs: list[tuple[int, int]]) -> None:
    first, second = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    lost, won = pairs.count((1, 0)), pairs.count((0, 1))
    assert mean_scores.drop(first, second, 0.95) == intervals.paired_drop(lost, won, len(pairs), 0.95)


@settings(max_examples=15)
@given(LISTS, st.sampled_from([0.8, 0.95]))
def test_an_interval_contains_its_mean_and_stays_in_range(found: list[float], confidence: float) -> None:
    interval = mean_scores.mean(found, confidence)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.value == pytest.approx(sum(found) / len(found))
    assert interval == mean_scores.mean(found, confidence)
    if len(found) < 10:
        assert interval.low < interval.value or interval.value == 0  # equal scores do not look certain
        assert interval.high > interval.value or interval.value == 1


@settings(max_examples=15)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=12))
def test_a_drop_contains_its_mean_and_stays_in_range(pairs: list[tuple[float, float]]) -> None:
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    interval = mean_scores.drop(first, second, 0.95)
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    back = mean_scores.drop(second, first, 0.95)
    assert back.value == pytest.approx(-interval.value)
    assert interval.low == pytest.approx(-back.high, abs=0.1)


def test_more_scores_and_less_confidence_make_it_narrower() -> None:
    few, many = [0.25, 0.75, 0.5], [0.25, 0.75, 0.5] * 20
    wide, narrow = mean_scores.mean(few, 0.95), mean_scores.mean(many, 0.95)
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high
    assert mean_scores.mean(few, 0.8).low > wide.low


def test_a_drop_in_pairs_is_surer_than_two_means() -> None:
    before = [0.1, 0.9, 0.3, 0.7] * 10
    after = [score - 0.05 for score in before]
    found = mean_scores.drop(before, after, 0.95)
    assert found.value == pytest.approx(0.05)
    mean = mean_scores.mean(before, 0.95)
    assert found.high - found.low < mean.high - mean.low


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], []), ([0.5, 0.5], [1.0])])
def test_scores_without_a_partner_are_refused(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="are not pairs"):
        mean_scores.drop(first, second, 0.95)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.floats(0.1, 0.9), st.floats(0.1, 0.9)), min_size=1, max_size=12))
def test_scores_of_another_range_have_the_same_intervals_in_their_unit(pairs: list[tuple[float, float]]) -> None:
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    large, other = ([4 * score for score in scores] for scores in (first, second))
    assert mean_scores.mean(large, 0.95, 4.0) == pytest.approx([4 * end for end in mean_scores.mean(first, 0.95)])
    drop = mean_scores.drop(first, second, 0.95)
    assert mean_scores.drop(large, other, 0.95, 4.0) == pytest.approx([4 * end for end in drop])
