"""How far two models' answers are apart, in nats: finer than labels, and blind to what no answer depends on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgepack.graph.encoder import Float


def divergence(before: Sequence[Float], after: Sequence[Float], *, multi_label: bool) -> float:
    """Mean over answers of KL(before || after), in nats.

    Args:
        before: logits of each row, (1, C), or (1, T, C) where each token is an answer.
        after: another model's, of the same shapes.
        multi_label: each label is an answer of its own, yes or no; otherwise one of C is.
    """
    apart = [
        _kl(_log_shares(one, multi_label), _log_shares(other, multi_label))
        for one, other in zip(before, after, strict=True)
    ]
    return float(np.concatenate([found.ravel() for found in apart]).mean())


def _log_shares(logits: Float, multi_label: bool) -> npt.NDArray[np.float64]:
    """(..., C) -> log of what each of C alternatives gets; of several labels (..., C, 2), no and yes."""
    wide = logits.astype(np.float64)
    if multi_label:
        wide = np.stack([np.zeros_like(wide), wide], axis=-1)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def _kl(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(..., C) twice -> (...)."""
    return np.asarray((np.exp(before) * (before - after)).sum(axis=-1))
