"""ScoreCalibration: temperatures, weights of sums, calibration error and Brier score."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgepack import calibration


def drawn(
    scale: float, rows: int = 4000, labels: int = 3, seed: int = 1
) -> tuple[calibration.Float, calibration.Truths]:
    """Logits, and truths drawn from the probabilities of logits / `scale`."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, labels)) * 3
    chances = np.exp(logits / scale)
    chances /= chances.sum(axis=1, keepdims=True)
    picked = (chances.cumsum(axis=1) < random.random((rows, 1))).sum(axis=1)
    return logits, picked[:, None] == np.arange(labels)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.5])
def test_the_temperature_of_overconfident_logits_is_found(scale: float) -> None:
    found = calibration.temperature(*drawn(scale), multi_label=False)
    assert found == pytest.approx(scale, rel=0.1)


def test_the_order_that_fits_is_found_by_the_answers() -> None:
    truths = np.eye(3, dtype=bool)[[0, 0, 1, 1, 2, 2]]
    swapped = np.eye(3)[[1, 1, 0, 0, 2, 0]]  # outputs 0 and 1 are the other way round, and one answer is wrong
    order, as_given, best = calibration.fitting_order(calibration.Units(swapped, truths), multi_label=False)
    assert order == [1, 0, 2]
    assert as_given == pytest.approx((0 + 0 + 2 / 3) / 3)
    assert best == pytest.approx((1 + 4 / 5 + 2 / 3) / 3)
    several = calibration.Units(np.where(swapped > 0, 1.0, -1.0), truths)
    assert calibration.fitting_order(several, multi_label=True) == (order, as_given, best)


def test_a_label_without_rows_keeps_its_output() -> None:
    truths = np.eye(4, dtype=bool)[[0, 1, 1]]
    found = calibration.fitting_order(calibration.Units(np.eye(4)[[0, 1, 1]], truths), multi_label=False)
    assert found == ([0, 1, 2, 3], 1.0, 1.0)


def test_a_temperature_makes_probabilities_agree_with_the_share_of_right_answers() -> None:
    logits, truths = drawn(2.5)
    half = len(logits) // 2
    dev, test = (calibration.Units(logits[part], truths[part]) for part in (slice(half), slice(half, None)))
    found = calibration.calibrate(dev, test, multi_label=False)
    assert found.before.ece_points > 10 > 5 > found.after.ece_points
    assert found.after.brier < found.before.brier
    assert found.text.startswith("calibration error 1") and " -> " in found.text


def test_calibration_error_and_brier_score_by_hand() -> None:
    """Three answers at probability 0.9, one of them wrong; one at 0.6, right."""
    high, low = math.log(9), math.log(1.5)
    logits = np.array([[high, 0.0], [high, 0.0], [high, 0.0], [low, 0.0]])
    truths = np.array([[True, False], [True, False], [False, True], [True, False]])
    found = calibration.reliability(logits, truths, multi_label=False)
    assert found.ece_points == pytest.approx(100 * (abs(3 * 0.9 - 2) + abs(0.6 - 1)) / 4, abs=1e-3)
    assert found.brier == pytest.approx((2 * 2 * 0.1**2 + 2 * 0.9**2 + 2 * 0.4**2) / 4, abs=1e-5)


def test_several_labels_are_judged_one_by_one() -> None:
    logits = np.array([[math.log(4), -math.log(4)]])  # 0.8 and 0.2
    found = calibration.reliability(logits, np.array([[True, True]]), multi_label=True)
    assert found.ece_points == pytest.approx(100 * abs(2 * 0.8 - 1) / 2, abs=1e-3)
    assert found.brier == pytest.approx((0.2**2 + 0.8**2) / 2, abs=1e-5)


def test_weights_of_a_sum_ignore_a_model_that_knows_nothing() -> None:
    logits, truths = drawn(2.0)
    noise = np.random.default_rng(2).normal(size=logits.shape)
    right, wrong = calibration.mixing_weights([logits, noise], truths, multi_label=False)
    assert right == pytest.approx(0.5, rel=0.1)
    assert wrong < 0.1


def test_units_are_rows_labels_or_the_tokens_that_have_a_tag() -> None:
    rows = calibration.units([np.zeros(3), np.ones(3)], [np.array(2), np.array(0)])
    assert rows.truths.tolist() == [[False, False, True], [True, False, False]]
    several = calibration.units([np.zeros(2)], [np.array([1.0, 0.0], np.float32)])
    assert several.truths.tolist() == [[True, False]]
    tokens = calibration.units(
        [np.zeros((4, 2)), np.ones((3, 2))], [np.array([-100, 0, 1, -100]), np.array([-100, 1, -100])]
    )
    assert tokens.logits.shape == (3, 2)
    assert tokens.truths.tolist() == [[True, False], [False, True], [False, True]]


LOGITS = arrays(np.float32, (1, 4), elements=st.floats(-30, 30, width=32))


def shares(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(found / found.sum())


@settings(max_examples=60)
@given(LOGITS, LOGITS)
def test_it_is_the_kl_of_the_shares(before: np.ndarray, after: np.ndarray) -> None:
    p, q = shares(before[0]), shares(after[0])
    expected = float(np.sum(p * (np.log(p) - np.log(q))))
    assert calibration.divergence([before], [after], multi_label=False) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=40)
@given(LOGITS, st.floats(-20, 20))
def test_what_all_logits_have_in_common_is_no_divergence(before: np.ndarray, offset: float) -> None:
    apart = calibration.divergence([before], [before + np.float32(offset)], multi_label=False)
    assert apart == pytest.approx(0, abs=1e-5)


def test_of_several_labels_each_is_an_answer() -> None:
    before, after = np.zeros((1, 2), np.float32), np.array([[0.0, np.log(3)]], np.float32)
    one = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)  # of a label that goes from 1/2 to 3/4
    assert calibration.divergence([before], [after], multi_label=True) == pytest.approx(one / 2)


def test_each_token_counts_whatever_the_lengths_of_the_texts() -> None:
    short, long = np.zeros((1, 1, 2), np.float32), np.zeros((1, 3, 2), np.float32)
    moved = short + np.array([0, np.log(3)], np.float32)
    whole = calibration.divergence([short, long], [moved, long], multi_label=False)
    assert whole == pytest.approx(calibration.divergence([short], [moved], multi_label=False) / 4)


def test_rows_that_are_missing_are_an_error() -> None:
    row = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="shorter"):
        calibration.divergence([row, row], [row], multi_label=False)
