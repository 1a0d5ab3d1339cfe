"""Samples of a stream."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edgepack.data.sampling import Sampler


def drawn(size: int, rows: int, seed: str) -> list[int]:
    draw = Sampler(size, rows, seed)
    return [row for row in range(rows) if draw()]


@given(st.integers(0, 60), st.integers(0, 50), st.text(max_size=5))
def test_a_sample_has_the_size_that_was_asked_for(size: int, rows: int, seed: str) -> None:
    assert len(drawn(size, rows, seed)) == min(size, rows) == Sampler(size, rows, seed).size


def test_the_seed_decides_alone() -> None:
    assert drawn(5, 100, "train/0") == [24, 30, 31, 54, 59]
    assert drawn(5, 100, "train/1") != drawn(5, 100, "train/0")


def test_every_row_is_drawn_as_often() -> None:
    counts = Counter(row for seed in range(3000) for row in drawn(3, 10, str(seed)))
    assert all(780 < counts[row] < 1020 for row in range(10))  # 900 on average, 25 its standard deviation
