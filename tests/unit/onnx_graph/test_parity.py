"""How far two models are apart: the divergence of their answers, and the differences of their logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.parity import compare, divergence, require

LOGITS = arrays(np.float32, (1, 4), elements=st.floats(-30, 30, width=32))


def shares(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(found / found.sum())


@settings(max_examples=60)
@given(LOGITS, LOGITS)
def test_it_is_the_kl_of_the_shares(before: np.ndarray, after: np.ndarray) -> None:
    p, q = shares(before[0]), shares(after[0])
    expected = float(np.sum(p * (np.log(p) - np.log(q))))
    assert divergence([before], [after], multi_label=False) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=40)
@given(LOGITS, st.floats(-20, 20))
def test_what_all_logits_have_in_common_is_no_divergence(before: np.ndarray, offset: float) -> None:
    assert divergence([before], [before + np.float32(offset)], multi_label=False) == pytest.approx(0, abs=1e-5)


def test_of_several_labels_each_is_an_answer() -> None:
    before, after = np.zeros((1, 2), np.float32), np.array([[0.0, np.log(3)]], np.float32)
    one = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)  # of a label that goes from 1/2 to 3/4
    assert divergence([before], [after], multi_label=True) == pytest.approx(one / 2)


def test_each_token_counts_whatever_the_lengths_of_the_texts() -> None:
    short, long = np.zeros((1, 1, 2), np.float32), np.zeros((1, 3, 2), np.float32)
    moved = short + np.array([0, np.log(3)], np.float32)
    whole = divergence([short, long], [moved, long], multi_label=False)
    assert whole == pytest.approx(divergence([short], [moved], multi_label=False) / 4)


def test_rows_that_are_missing_are_an_error() -> None:
    row = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="shorter"):
        divergence([row, row], [row], multi_label=False)


ROWS = np.array([[1.0, 2.0], [3.0, 0.0]], dtype=np.float32)


def test_compare_finds_the_largest_difference_and_the_flips() -> None:
    after = ROWS + np.array([[0.0, 0.5], [-3.5, 0.0]], dtype=np.float32)
    parity = compare(ROWS, after)
    assert (parity.max_abs, parity.flips, parity.n) == (3.5, 1, 2)


def test_require_names_the_hand_over_that_failed() -> None:
    with pytest.raises(StageFailedError, match=r"one and two disagree by 1\.00e-02"):
        require(ROWS, ROWS + np.float32(0.01), 1e-3, "one and two")
    assert require(ROWS, ROWS, 1e-6, "one and two").max_abs == 0.0


@pytest.mark.parametrize("broken", [ROWS[:1], np.full_like(ROWS, np.nan)])
def test_missing_rows_and_nan_never_pass(broken: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(StageFailedError):
        require(ROWS, broken, 1e9, "one and two")


def test_a_logit_that_is_not_a_number_is_no_parity() -> None:
    good, bad = np.zeros((1, 2), np.float32), np.array([[0, np.nan]], np.float32)
    for before, after in (([good, bad], [good, good]), ([good, good], [good, bad])):
        with pytest.raises(StageFailedError):
            require(before, after, 1e-4, "one and two")
