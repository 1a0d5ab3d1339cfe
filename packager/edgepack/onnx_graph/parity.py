"""Parity of two forms of a model: the largest difference of their logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.encoder import Float


@dataclass(frozen=True)
class Parity:
    """Largest absolute difference of a logit, and rows whose labels differ, over `n` rows."""

    max_abs: float
    flips: int
    n: int


def compare(before: Sequence[Float], after: Sequence[Float]) -> Parity:
    """Parity of two sets of logits for the same rows, each (1, C), or (1, T, C) if tokens are classified."""
    pairs = list(zip(before, after, strict=True))
    return Parity(
        max_abs=float(np.max([np.abs(one - other).max() for one, other in pairs])),  # `max` passes over a NaN
        flips=sum(bool((one.argmax(axis=-1) != other.argmax(axis=-1)).any()) for one, other in pairs),
        n=len(pairs),
    )


def require(before: Sequence[Float], after: Sequence[Float], tolerance: float, names: str) -> Parity:
    """Parity of two sets of logits that must agree to `tolerance`, or to a tenth of it times the largest logit.

    The latter is for numbers in any unit: labels hardly have logits above 10.

    Raises:
        StageFailedError: they do not agree. `names` names the two forms in the message.
    """
    if len(before) != len(after):
        raise StageFailedError(f"export: {names}: logits of {len(after)} rows, expected {len(before)}")
    for one, other in zip(before, after, strict=True):
        if one.shape != other.shape or not np.isfinite(other).all():
            raise StageFailedError(
                f"export: {names}: logits of shape {other.shape}, expected finite ones of shape {one.shape}"
            )
    parity = compare(before, after)
    tolerance *= max(1.0, max(float(np.abs(one).max()) for one in before) / 10)
    if not parity.max_abs <= tolerance:
        raise StageFailedError(
            f"export: {names} disagree by {parity.max_abs:.2e}",
            why=f"largest difference of a logit on {parity.n} texts; at most {tolerance:.0e} is allowed",
        )
    return parity
