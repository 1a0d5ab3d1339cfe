"""Calibration of scores: a temperature for logits, and measures of how far probabilities can be trusted.

Shapes: C labels, T tokens of a row, U units. A unit is a row, or in token classification a token. Its answer is one of
the C labels; if rows have several labels (`multi_label`), it has C answers, each yes or no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack.messages import message

Float = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
BINS: Final = 15  # as in Guo et al. (2017)
# Limits of the number that logits are multiplied by. Without them it is infinite for a model without dev errors.
_MIN_MULTIPLIER, _MAX_MULTIPLIER = 1 / 16, 16.0
_LOG_TOLERANCE: Final = 1e-4  # of the natural logarithm of the multiplier


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities of a model can be trusted; smaller is better.

    Attributes:
        ece_points: expected calibration error (Naeini et al., 2015): mean distance between the probability of an answer
            and the share of right answers, over 15 bins of probability, in percentage points.
        brier: (probability - truth)^2, summed over the labels, mean over the units (Brier, 1950); with several labels
            the mean over both.
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
        before, after = self.before, self.after
        return message(
            "note.calibration", ece_before=before.ece_points, ece=after.ece_points,
            brier_before=before.brier, brier=after.brier,
        )  # fmt: skip


@dataclass(frozen=True)
class Units:
    """Logits and truths of units, both of shape (U, C)."""

    logits: Float
    truths: Truths


def units(logits: Sequence[npt.NDArray[Any]], targets: Sequence[npt.NDArray[Any]]) -> Units:
    """The units of rows, without those that have no label.

    Args:
        logits: of each row, (C,) or (T, C).
        targets: of each row, as in training. Integers are the number of the row's label, shape (), or of each token's
            label, shape (T,); below 0 there is none. Floats, shape (C,), are 1 for each label of the row, else 0.
    """
    table = np.concatenate([np.atleast_2d(row) for row in logits]).astype(np.float64)
    if targets[0].dtype.kind == "f":  # several labels
        return Units(table, np.stack(targets) > 0.5)
    numbers = np.concatenate([np.atleast_1d(target) for target in targets])
    labelled = numbers >= 0
    return Units(table[labelled], numbers[labelled, None] == np.arange(table.shape[1]))


def fitting_order(made: Units, *, multi_label: bool) -> tuple[list[int], float, float]:
    """The label of each output that fits the truths best, and macro F1 with output i as label i, and in that order.

    The order is the assignment with the highest sum of F1, over the F1 of every label with every output.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    count = made.logits.shape[1]
    answers = made.logits >= 0 if multi_label else np.eye(count, dtype=bool)[made.logits.argmax(axis=1)]
    truths, answered = made.truths.astype(np.float64), answers.astype(np.float64)  # (U, C)
    sizes = truths.sum(axis=0)[:, None] + answered.sum(axis=0)[None, :]
    f1 = 2 * (truths.T @ answered) / np.maximum(sizes, 1)  # (label, output)
    there = max(1, np.count_nonzero(truths.sum(axis=0)))
    stay = 1e-9 * np.eye(count)  # a label without rows keeps its output
    rows, columns = linear_sum_assignment(f1 + stay, maximize=True)
    order = [0] * count
    for label, output in zip(rows.tolist(), columns.tolist(), strict=True):
        order[output] = label
    return order, float(np.trace(f1) / there), float(f1[rows, columns].sum() / there)


def calibrate(dev: Units, test: Units, *, multi_label: bool) -> ScoreCalibration:
    """Fit the temperature on the `dev` units, and measure the reliability on the `test` units before and after."""
    fitted = temperature(dev.logits, dev.truths, multi_label=multi_label)
    before = reliability(test.logits, test.truths, multi_label=multi_label)
    after = reliability(test.logits / fitted, test.truths, multi_label=multi_label)
    return ScoreCalibration(fitted, before, after)


def log_loss(logits: Float, truths: Truths, *, multi_label: bool) -> float:
    """Mean negative log-likelihood of the truths, in nats, per unit.

    Args:
        logits, truths: shape (U, C). A unit has exactly one true label, unless `multi_label`.
    """
    if multi_label:
        return float(np.logaddexp(0, np.where(truths, -logits, logits)).mean())
    highest = logits.max(axis=1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    return float((total - logits[truths]).mean())


def temperature(logits: Float, truths: Truths, *, multi_label: bool) -> float:
    """The temperature T for which logits / T explain the truths best (Guo et al., 2017). It changes no answer.

    Shapes as in `log_loss`.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    found = minimize_scalar(
        lambda log_multiplier: log_loss(logits * np.exp(log_multiplier), truths, multi_label=multi_label),
        bounds=(np.log(_MIN_MULTIPLIER), np.log(_MAX_MULTIPLIER)),
        method="bounded",
        options={"xatol": _LOG_TOLERANCE},
    )
    return round(float(np.exp(-found.x)), 4)  # the temperature is 1 / multiplier


def mixing_weights(logits: Sequence[Float], truths: Truths, *, multi_label: bool) -> list[float]:
    """The weights of several models, at least 0, for which the weighted sum of their logits explains the truths best.

    Args:
        logits: of each model on the same units, shape (U, C).
    """
    from scipy.optimize import minimize  # slow to import

    stacked = np.stack(logits)  # (models, U, C)

    def loss(weights: Any) -> float:
        return log_loss(np.tensordot(weights, stacked, axes=1), truths, multi_label=multi_label)

    start = np.full(len(logits), 1 / len(logits))
    found = minimize(loss, start, method="L-BFGS-B", bounds=[(0.0, _MAX_MULTIPLIER)] * len(logits))
    return [round(float(weight), 4) for weight in found.x]


def reliability(logits: Float, truths: Truths, *, multi_label: bool) -> Reliability:
    """Calibration error and Brier score of logits, shapes as in `log_loss`."""
    if multi_label:
        probabilities = 1 / (1 + np.exp(-logits))
        answers = probabilities >= 0.5
        confidence = np.where(answers, probabilities, 1 - probabilities).ravel()
        right = (answers == truths).ravel()
        brier = np.square(probabilities - truths).mean()
    else:
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        confidence = probabilities.max(axis=1)
        right = truths[np.arange(len(truths)), logits.argmax(axis=1)]
        brier = np.square(probabilities - truths).sum(axis=1).mean()
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=BINS)  # of each bin: sum of confidence - right
    return Reliability(round(100 * float(np.abs(gaps).sum()) / len(right), 3), round(float(brier), 5))


def divergence(reference: Sequence[npt.NDArray[Any]], other: Sequence[npt.NDArray[Any]], *, multi_label: bool) -> float:
    """Mean over the answers of KL(reference || other), of the predictions of two models, in nats.

    Args:
        reference: logits of each row, (1, C), or (1, T, C) if tokens are classified.
        other: logits of the other model for the same rows, in the same shapes.
    """
    rows = [
        _kl(_log_probabilities(p, multi_label), _log_probabilities(q, multi_label))
        for p, q in zip(reference, other, strict=True)
    ]
    return float(np.concatenate([row.ravel() for row in rows]).mean())


def _log_probabilities(logits: npt.NDArray[Any], multi_label: bool) -> Float:
    """Log-probabilities of logits: shape (..., C), or for several labels (..., C, 2) with no and yes."""
    shifted = logits.astype(np.float64)
    if multi_label:
        shifted = np.stack([np.zeros_like(shifted), shifted], axis=-1)  # sigmoid(x) is softmax((0, x))
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _kl(log_p: Float, log_q: Float) -> Float:
    """KL(p || q) over the last axis, of log-probabilities (..., C) -> (...)."""
    return np.asarray((np.exp(log_p) * (log_p - log_q)).sum(axis=-1))
