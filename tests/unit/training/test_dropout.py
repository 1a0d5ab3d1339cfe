"""Masks of dropout: how much they drop, that the mean stays, and what they follow from."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.training.dropout import Masks, is_supported

LARGE = (3, 1000, 701)  # more than is drawn at once, and no multiple of four


def begun(seed: int) -> Masks:
    masks = Masks()
    masks.begin(seed)
    return masks


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_a_mask_drops_its_rate_and_keeps_the_mean(rate: float) -> None:
    mask = begun(7).take(LARGE, rate)
    assert mask.shape == LARGE
    assert mask.dtype == np.float32
    kept = np.unique(mask)
    assert kept.tolist() == pytest.approx([0.0, 1 / (1 - rate)], rel=1e-4)
    deviation = (rate * (1 - rate) / mask.size) ** 0.5
    assert (mask == 0).mean() == pytest.approx(rate, abs=5 * deviation)
    assert mask.mean() == pytest.approx(1, abs=5 * deviation / (1 - rate))


def test_parts_of_a_mask_are_independent() -> None:
    dropped = begun(7).take((2 * (1 << 20),), 0.5) == 0
    first, second = dropped[: 1 << 20], dropped[1 << 20 :]
    assert (first == second).mean() == pytest.approx(0.5, abs=0.005)
    lanes = dropped.reshape(-1, 4).mean(axis=0)  # the four that share 64 bits
    assert lanes == pytest.approx([0.5] * 4, abs=0.005)
    assert np.abs(np.corrcoef(dropped.reshape(-1, 4).T) - np.eye(4)).max() < 0.01


def test_masks_follow_from_the_seed_and_their_order() -> None:
    one, other = begun(5), begun(5)
    for _ in range(3):
        assert np.array_equal(one.take((5, 7), 0.3), other.take((5, 7), 0.3))
    assert not np.array_equal(one.take((50, 7), 0.3), one.take((50, 7), 0.3))
    assert not np.array_equal(begun(5).take((50, 7), 0.3), begun(6).take((50, 7), 0.3))
    masks = begun(5)
    masks.take((9,), 0.3)
    masks.begin(2**40)
    assert np.array_equal(masks.take((64,), 0.5), begun(2**40).take((64,), 0.5))


def test_numbers_are_the_same_on_every_machine() -> None:
    """What SFC64 draws is promised by NumPy; a change would end resumed trainings with other weights."""
    dropped = (begun(0).take((24,), 0.5) == 0).astype(int)
    assert "".join(map(str, dropped)) == "100001010001010100111010"


@pytest.mark.parametrize(("rate", "fit"), [(0, False), (1e-6, False), (1e-5, True), (0.1, True), (1, False)])
def test_all_or_nothing_is_left_to_paddle(rate: float, fit: bool) -> None:
    assert is_supported(rate) is fit
