"""Calibration of scores: a temperature for logits, and measures of how far probabilities can be trusted.

A unit has one answer: a row, or in token classification a token. With several labels, each label of a row is a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
BINS: Final = 15  # as in Guo et al. (2017)
_SCALES: Final = (1 / 16, 16.0)  # of logits; the best one of a model that is right on every dev row is infinite
_TOLERANCE: Final = 1e-4  # of the logarithm of a scale


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities of a model can be trusted; smaller is better.

    Attributes:
        ece_points: expected calibration error (Naeini et al., 2015): mean distance between the probability of an answer
            and the share of right answers, over 15 bins of probability, in percentage points.
        brier: mean over the units of the sum over the labels of (probability - truth)^2 (Brier, 1950); with several
            labels, of one label.
    """

    ece_points: float
    brier: float


@dataclass(frozen=True)
class ScoreCalibration:
    """The temperature of a model, fitted on dev, and its reliability on test before and after."""

    temperature: float
    before: Reliability
    after: Reliability

    @property
    def text(self) -> str:
        """`calibration error 4.1 -> 1.2 points, Brier 0.142 -> 0.131`."""
        errors = f"{self.before.ece_points:.1f} -> {self.after.ece_points:.1f} points"
        return f"calibration error {errors}, Brier {self.before.brier:.3f} -> {self.after.brier:.3f}"


@dataclass(frozen=True)
class Units:
    """Logits and truths of units, both of shape (U, C)."""

    logits: Float
    truths: Truths


def units(logits: Sequence[npt.NDArray[Any]], targets: Sequence[npt.NDArray[Any]]) -> Units:
    """The units of rows that have a label.

    Args:
        logits: of each row, (C,) or (T, C).
        targets: of each row, as in training: the number of its label (), whether it has each label (C,), or the
            number of the label of each token (T,); a number below 0 is no label.
    """
    table = np.concatenate([np.atleast_2d(row) for row in logits]).astype(np.float64)
    if targets[0].dtype.kind == "f":
        return Units(table, np.stack(targets) > 0.5)
    numbers = np.concatenate([np.atleast_1d(target) for target in targets])
    labelled = numbers >= 0
    return Units(table[labelled], numbers[labelled, None] == np.arange(table.shape[1]))


def of(dev: Units, test: Units, *, multi_label: bool) -> ScoreCalibration:
    """The temperature of the `dev` units, and the reliability on the `test` units before and after."""
    scale = temperature(dev.logits, dev.truths, multi_label=multi_label)
    before, after = (
        reliability(test.logits / divisor, test.truths, multi_label=multi_label) for divisor in (1.0, scale)
    )
    return ScoreCalibration(scale, before, after)


def log_loss(logits: Float, truths: Truths, *, multi_label: bool) -> float:
    """Mean negative log-likelihood of the truths, in nats, per unit.

    Args:
        logits, truths: shape (U, C), the truths with one true label a unit unless `multi_label`.
    """
    if multi_label:
        return float(np.logaddexp(0, np.where(truths, -logits, logits)).mean())
    highest = logits.max(axis=1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    return float((total - logits[truths]).mean())


def temperature(logits: Float, truths: Truths, *, multi_label: bool) -> float:
    """The temperature T for which logits / T explain the truths best (Guo et al., 2017). No answer changes.

    Shapes as in `log_loss`.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    low, high = np.log(_SCALES)
    found = minimize_scalar(
        lambda scale: log_loss(logits * np.exp(scale), truths, multi_label=multi_label),
        bounds=(low, high),
        method="bounded",
        options={"xatol": _TOLERANCE},
    )
    return round(float(np.exp(-found.x)), 4)


def weights(parts: Sequence[Float], truths: Truths, *, multi_label: bool) -> list[float]:
    """The weights of at least 0 for which the weighted sum of `parts` explains the truths best.

    Args:
        parts: logits of several models on the same units, each of shape (U, C).
    """
    from scipy.optimize import minimize  # slow to import

    def loss(given: Any) -> float:
        return log_loss(np.tensordot(given, table, axes=1), truths, multi_label=multi_label)

    table = np.stack(parts)  # (models, U, C)
    start = np.full(len(parts), 1 / len(parts))
    found = minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, _SCALES[1])] * len(parts))
    return [round(float(weight), 4) for weight in found.x]


def reliability(logits: Float, truths: Truths, *, multi_label: bool) -> Reliability:
    """Calibration error and Brier score of logits, shapes as in `log_loss`."""
    if multi_label:
        probabilities = 1 / (1 + np.exp(-logits))
        answers = probabilities >= 0.5
        confidence, right = np.where(answers, probabilities, 1 - probabilities).ravel(), (answers == truths).ravel()
        brier = np.square(probabilities - truths).mean()
    else:
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        confidence, answered = probabilities.max(axis=1), logits.argmax(axis=1)
        right = truths[np.arange(len(truths)), answered]
        brier = np.square(probabilities - truths).sum(axis=1).mean()
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    excess = np.bincount(bins, weights=confidence - right, minlength=BINS)  # probability beyond the right answers
    return Reliability(round(100 * float(np.abs(excess).sum()) / len(right), 3), round(float(brier), 5))


def divergence(before: Sequence[npt.NDArray[Any]], after: Sequence[npt.NDArray[Any]], *, multi_label: bool) -> float:
    """Mean over answers of KL(before || after), in nats.

    Args:
        before: logits of each row, (1, C), or (1, T, C) if tokens are classified.
        after: logits of the other model, in the same shapes.
        multi_label: every label is a separate answer (yes or no); otherwise the answer is one of C labels.
    """
    apart = [
        _kl(_log_shares(one, multi_label), _log_shares(other, multi_label))
        for one, other in zip(before, after, strict=True)
    ]
    return float(np.concatenate([found.ravel() for found in apart]).mean())


def _log_shares(logits: npt.NDArray[Any], multi_label: bool) -> Float:
    """Log-probabilities of logits: shape (..., C), or for several labels (..., C, 2) with no and yes."""
    wide = logits.astype(np.float64)
    if multi_label:
        wide = np.stack([np.zeros_like(wide), wide], axis=-1)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def _kl(before: Float, after: Float) -> Float:
    """KL divergence over the last axis: (..., C) twice -> (...)."""
    return np.asarray((np.exp(before) * (before - after)).sum(axis=-1))
