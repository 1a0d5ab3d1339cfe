"""How far two sets of logits are apart: checked at every hand-over from one form of the model to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgepack.errors import StageFailedError

Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Parity:
    """Largest absolute difference of a logit, and rows whose label differs, over `n` texts."""

    max_abs: float
    flips: int
    n: int


def compare(before: Float, after: Float) -> Parity:
    """Parity of two (N, C) arrays of logits for the same texts."""
    return Parity(
        max_abs=float(np.abs(before - after).max()),
        flips=int((before.argmax(axis=1) != after.argmax(axis=1)).sum()),
        n=len(before),
    )


def require(before: Float, after: Float, tolerance: float, names: str) -> Parity:
    """Parity of two arrays that must agree to `tolerance` (absolute, in logits).

    Raises:
        StageFailedError: when they do not; `names` says which hand-over failed.
    """
    if before.shape != after.shape or not np.isfinite(after).all():
        raise StageFailedError(
            f"export: {names}: logits of shape {after.shape} where {before.shape} finite ones were due"
        )
    parity = compare(before, after)
    if parity.max_abs > tolerance:
        raise StageFailedError(
            f"export: {names} disagree by {parity.max_abs:.2e}",
            why=f"largest difference of a logit on {parity.n} texts; at most {tolerance:.0e} is allowed",
        )
    return parity
