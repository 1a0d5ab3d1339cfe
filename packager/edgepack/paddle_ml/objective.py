"""What a task trains on: how its answers become targets, what a logit costs, and what the logits answer.

A unit is what has one answer of its own: a row, or in token classification a token. Losses come as one figure a unit,
so that a step's loss is the same whatever parts its rows are run in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

Float = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
UNLABELLED: Final = -1  # the target of a unit whose label nobody knows: the teacher alone speaks of it
NO_UNIT: Final = -100  # of a token that has no answer: padding, [CLS], [SEP]


class Objective(Protocol):
    """One task's losses. `scores` are the network's logits of a batch, `targets` what `collate` made of its rows."""

    def collate(self, targets: list[Array], tokens: int) -> Array:
        """Targets, or soft labels, of one batch as an array; `tokens` is what its rows are padded to."""

    def units(self, targets: Any) -> tuple[Any, Any]:
        """Masks of shape (U,), float32: which units count, and which of those have a label."""

    def count(self, target: Array) -> int:
        """How many units of one row, given its target, count."""

    def hard(self, scores: Any, targets: Any) -> Any:
        """Loss of each unit against its label, shape (U,); whatever for units without one."""

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        """T^2 times the divergence of each unit from the teacher's logits, shape (U,)."""


class OneLabel:
    """One of C labels for a row, a unit: logits are (B, C), a target is the label's number.

    Args:
        weights: of the labels in the loss, shape (C,), with a mean of 1 over the training rows; None for all alike.
    """

    def __init__(self, weights: Float | None = None) -> None:
        self._weights = None if weights is None else paddle.to_tensor(weights)

    def collate(self, targets: list[Array], tokens: int) -> Array:
        return np.stack(targets)

    def units(self, targets: Any) -> tuple[Any, Any]:
        return paddle.ones_like(targets, dtype="float32"), (targets != UNLABELLED).astype("float32")  # (B,)

    def count(self, target: Array) -> int:
        return 1

    def hard(self, scores: Any, targets: Any) -> Any:
        return _cross_entropy(scores, targets.clip(min=0), self._weights)  # (B,)

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        return _divergence(scores, teacher, temperature)  # (B,)


class ManyLabels:
    """Any of C labels for a row, a unit: logits are (B, C), a target holds 0 or 1 for each label."""

    def collate(self, targets: list[Array], tokens: int) -> Array:
        return np.stack(targets).astype(np.float32)

    def units(self, targets: Any) -> tuple[Any, Any]:
        known = (targets[:, 0] != UNLABELLED).astype("float32")  # (B,)
        return paddle.ones_like(known), known

    def count(self, target: Array) -> int:
        return 1

    def hard(self, scores: Any, targets: Any) -> Any:
        loss = F.binary_cross_entropy_with_logits(scores, targets.clip(min=0), reduction="none")  # (B, C)
        return loss.mean(axis=-1)

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        wanted = F.sigmoid(teacher / temperature)
        loss = F.binary_cross_entropy_with_logits(scores / temperature, wanted, reduction="none")  # (B, C)
        least = F.binary_cross_entropy_with_logits(teacher / temperature, wanted, reduction="none")  # its entropy
        return temperature**2 * (loss - least).mean(axis=-1)


class Tags:
    """One of C tags for each token, a unit: logits are (B, T, C), a target has the number of each token's tag."""

    def __init__(self, weights: Float | None = None) -> None:
        self._weights = None if weights is None else paddle.to_tensor(weights)

    def collate(self, targets: list[Array], tokens: int) -> Array:
        shape = (len(targets), tokens, *targets[0].shape[1:])  # (B, T), and for soft labels (B, T, C)
        made = np.full(shape, NO_UNIT if targets[0].ndim == 1 else 0, dtype=targets[0].dtype)
        for index, row in enumerate(targets):
            made[index, : len(row)] = row
        return made

    def units(self, targets: Any) -> tuple[Any, Any]:
        flat = targets.flatten()  # (B*T,)
        counts = (flat != NO_UNIT).astype("float32")
        return counts, counts * (flat != UNLABELLED).astype("float32")

    def count(self, target: Array) -> int:
        return int(np.count_nonzero(target != NO_UNIT))

    def hard(self, scores: Any, targets: Any) -> Any:
        flat = scores.reshape([-1, scores.shape[-1]])  # (B*T, C)
        return _cross_entropy(flat, targets.flatten().clip(min=0), self._weights)

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        classes = scores.shape[-1]
        return _divergence(scores.reshape([-1, classes]), teacher.reshape([-1, classes]), temperature)  # (B*T,)


def balanced_weights(targets: Sequence[Array], classes: int) -> Float:
    """Weights (C,) that give every class the same say, whatever its share: n / (C' x n_c) for the C' that occur.

    Their mean over the labelled units is 1, so that the learning rate keeps its meaning. A class that never occurs
    has weight 1.
    """
    flat = np.concatenate([np.atleast_1d(target) for target in targets])
    counts = np.bincount(flat[flat >= 0], minlength=classes).astype(np.float64)  # (C,)
    occurring = counts > 0
    weights = np.ones(classes)
    weights[occurring] = counts.sum() / (occurring.sum() * counts[occurring])
    return weights.astype(np.float32)


def _cross_entropy(scores: Any, targets: Any, weights: Any | None) -> Any:
    loss = F.cross_entropy(scores, targets, reduction="none").flatten()  # (U,)
    return loss if weights is None else loss * paddle.gather(weights, targets)


def _divergence(scores: Any, teacher: Any, temperature: float) -> Any:
    """T^2 KL(teacher || student) of each row of logits (U, C), both softened by T; T^2 keeps the gradients' size.

    After Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (2015).
    """
    wanted = F.softmax(teacher / temperature, axis=-1)
    known, learnt = F.log_softmax(teacher / temperature, axis=-1), F.log_softmax(scores / temperature, axis=-1)
    return temperature**2 * (wanted * (known - learnt)).sum(axis=-1)
