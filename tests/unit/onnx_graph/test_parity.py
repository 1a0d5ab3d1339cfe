"""The differences of the logits of two models."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.parity import compare, require

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
