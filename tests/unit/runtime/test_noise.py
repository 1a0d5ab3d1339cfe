from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime import noise, stats
from edgepack_runtime.noise import Spell, Stretch

CONFIDENCE = 0.98


def interval(spells: list[Spell], fraction: float = 0.5) -> stats.Interval:
    return noise.percentile_interval(
        [Stretch(spells, sum(spell.lost_ms for spell in spells))] if spells else [], fraction, CONFIDENCE
    )


def test_without_neighbours_it_is_the_usual_interval() -> None:
    times = [float(i) for i in range(1, 201)]
    for fraction in (0.5, 0.95):
        usual = stats.percentile_interval(times, fraction, CONFIDENCE)
        assert interval([Spell(times[:77], 0.0), Spell(times[77:], 0.0)], fraction) == usual


def test_what_others_may_have_taken_is_taken_off_where_it_explains_most() -> None:
    # Of 100 texts at 98 %, a p50 above the limit needs 63 beyond it, so that explaining 38 is enough: 40 / 38 ms each.
    found = interval([Spell([10.0] * 100, 40.0)])
    assert found.low == pytest.approx(10 - 40 / 38, abs=1e-6)
    assert (found.value, found.high) == (10.0, 10.0)


def test_a_quiet_spell_is_not_blamed_on_a_noisy_one() -> None:
    noisy, quiet = Spell([20.0] * 50, 1000.0), Spell([10.0] * 150, 0.0)
    assert interval([noisy, quiet]).low == pytest.approx(10.0, abs=1e-6)
    assert interval([Spell([*noisy.times_ms, *quiet.times_ms], 1000.0)]).low < 5


def test_a_stretch_lost_no_more_than_its_counters_say_of_the_whole() -> None:
    """Four spells that seem to have lost a tick each are one tick together."""
    spells = [Spell([10.0] * 25, 40.0) for _ in range(4)]
    found = noise.percentile_interval([Stretch(spells, 40.0)], 0.5, CONFIDENCE)
    assert found.low == interval([Spell([10.0] * 100, 40.0)]).low
    assert interval(spells).low < found.low - 1
    most = noise.percentile_interval([Stretch(spells, math.inf)], 0.5, CONFIDENCE)
    assert most == interval(spells)


def test_what_is_not_known_explains_everything() -> None:
    assert interval([Spell([10.0] * 200, math.inf)]).low == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_no_interval() -> None:
    with pytest.raises(ValueError, match="no samples"):
        interval([])


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(65, 300),
    share=st.floats(0, 1),
    fraction=st.sampled_from([0.5, 0.95]),
    shape=st.sampled_from(["few", "all", "slowest"]),
)
def test_noise_within_its_bound_never_lifts_the_low_end_above_the_quiet_one(
    seed: int, n: int, share: float, fraction: float, shape: str
) -> None:
    """However a neighbour spreads what it takes: what fails beside it would fail without it."""
    draw = random.Random(seed)
    quiet = [draw.lognormvariate(1, 0.5) for _ in range(n)]
    budget = share * sum(quiet)
    noisy = list(quiet)
    chosen = sorted(range(n), key=quiet.__getitem__)[-n // 3 :] if shape == "slowest" else range(n)
    if shape == "few":
        chosen = draw.sample(range(n), max(1, n // 10))
    parts = [draw.random() for _ in chosen]
    for place, part in zip(chosen, parts, strict=True):
        noisy[place] += budget * part / sum(parts)
    cut = n // 2
    lost = [sum(noisy[:cut]) - sum(quiet[:cut]), sum(noisy[cut:]) - sum(quiet[cut:])]
    found = interval([Spell(noisy[:cut], lost[0] + 1e-9), Spell(noisy[cut:], lost[1] + 1e-9)], fraction)
    assert found.low <= stats.percentile_interval(quiet, fraction, CONFIDENCE).low + 1e-6
    assert found.low <= found.value <= found.high


def test_the_longest_are_cut_down_first() -> None:
    assert noise.cut_down([1.0, 9.0, 4.0, 8.0], 2.0) == [1.0, 7.5, 4.0, 7.5]
    assert noise.cut_down([1.0, 9.0, 4.0, 8.0], 0.0) == [1.0, 9.0, 4.0, 8.0]
    assert noise.cut_down([1.0, 9.0, 4.0, 8.0], math.inf) == [0.0] * 4
    assert noise.cut_down([], 5.0) == []


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 1000))
def test_what_is_cut_off_is_what_was_lost(times: list[float], lost_ms: float) -> None:
    found = noise.cut_down(times, lost_ms)
    assert sum(times) - sum(found) == pytest.approx(min(lost_ms, sum(times)), abs=1e-6)
    assert all(0 <= after <= before for after, before in zip(found, times, strict=True))
    cut = {after for after, before in zip(found, times, strict=True) if after < before}
    assert len(cut) <= 1
