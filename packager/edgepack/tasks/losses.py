"""Losses of the tasks, on logits and on a teacher's logits. Imported with Paddle, when a training begins.

A unit has one answer: a row, or a token. Losses are per unit, so that the loss of a step does not depend on the parts
in which its rows are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.tasks.task import NO_UNIT, UNLABELLED, Array

Float = npt.NDArray[np.float32]


class SoftmaxLoss:
    """One of C labels per row: logits (B, C), targets (B,) of label numbers.

    Args:
        weights: weights (C,) of the labels in the loss, with mean 1 over the training rows; None for equal weights.
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


class SigmoidLoss:
    """Any of C labels per row: logits (B, C), targets (B, C) of 0 and 1."""

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


class SquaredLoss:
    """A number per row: logits (B, 1), targets (B,), NaN for rows without a number."""

    def collate(self, targets: list[Array], tokens: int) -> Array:
        return np.stack(targets).astype(np.float32)

    def units(self, targets: Any) -> tuple[Any, Any]:
        known = 1 - paddle.isnan(targets).astype("float32")  # (B,)
        return paddle.ones_like(known), known

    def count(self, target: Array) -> int:
        return 1

    def hard(self, scores: Any, targets: Any) -> Any:
        wanted = paddle.where(paddle.isnan(targets), paddle.zeros_like(targets), targets)
        return (scores[:, 0] - wanted) ** 2  # (B,)

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        return (scores[:, 0] - teacher[:, 0]) ** 2  # T^2 ((s - t) / T)^2, for any T


class TokenLoss:
    """One of C tags per token: logits (B, T, C), targets (B, T) of tag numbers."""

    def __init__(self, weights: Float | None = None) -> None:
        self._weights = None if weights is None else paddle.to_tensor(weights)

    def collate(self, targets: list[Array], tokens: int) -> Array:
        return _padded(targets, tokens, NO_UNIT if targets[0].ndim == 1 else 0)  # (B, T), and for soft labels (B, T, C)

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


class IntentLoss(TokenLoss):
    """The same, where [CLS] has the label of the whole text: it weighs as much as all tokens of its row together."""

    def units(self, targets: Any) -> tuple[Any, Any]:
        counts, labelled = super().units(targets)  # (B*T,)
        by_row = counts.reshape(targets.shape)
        tokens = by_row[:, 1:].sum(axis=1, keepdim=True).clip(min=1.0)  # (B, 1)
        weights = paddle.concat([tokens, by_row[:, 1:]], axis=1).flatten()
        return weights, labelled

    def count(self, target: Array) -> int:
        tokens = super().count(target[1:])
        return tokens + max(1, tokens)


class SpanLoss:
    """A start and an end per row: logits (B, T, 2), targets (B, T, 2) of 1 at them and 0 at other tokens of the text.

    Each is a softmax over the tokens that may be one; those that may not, and padding, are NO_UNIT. Units are 2 B: the
    starts of all rows, then their ends.
    """

    def collate(self, targets: list[Array], tokens: int) -> Array:
        return _padded(targets, tokens, NO_UNIT if targets[0].dtype.kind == "i" else _NO_TOKEN)

    def units(self, targets: Any) -> tuple[Any, Any]:
        known = (targets.max(axis=1) == 1).astype("float32").flatten()  # (B, 2) -> (2 B,)
        return paddle.ones_like(known), known

    def count(self, target: Array) -> int:
        return 2

    def hard(self, scores: Any, targets: Any) -> Any:
        allowed = paddle.where(targets == NO_UNIT, paddle.full_like(scores, _NO_TOKEN), scores)
        wanted = (targets == 1).astype("float32")
        return -(wanted * F.log_softmax(allowed, axis=1)).sum(axis=1).flatten()  # (2 B,)

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        ours = paddle.where(teacher == _NO_TOKEN, paddle.full_like(scores, _NO_TOKEN), scores)
        theirs, ours = (logits.transpose([0, 2, 1]).flatten(0, 1) for logits in (teacher, ours))  # (2 B, T)
        return _divergence(ours, theirs, temperature)


_NO_TOKEN = -1e4  # logit of padding: its probability is 0, also in float16


def balanced_weights(targets: Sequence[Array], classes: int) -> Float:
    """Weights (C,) that give every class the same total: n / (C' x n_c) for the C' classes that occur.

    Their mean over the labelled units is 1, so that the learning rate keeps its meaning. A class that does not occur
    has weight 1.
    """
    flat = np.concatenate([np.atleast_1d(target) for target in targets])
    counts = np.bincount(flat[flat >= 0], minlength=classes).astype(np.float64)  # (C,)
    occurring = counts > 0
    weights = np.ones(classes)
    weights[occurring] = counts.sum() / (occurring.sum() * counts[occurring])
    return weights.astype(np.float32)


def _padded(targets: list[Array], tokens: int, filler: float) -> Array:
    """Targets of rows (T, ...) as one array (B, `tokens`, ...)."""
    made = np.full((len(targets), tokens, *targets[0].shape[1:]), filler, dtype=targets[0].dtype)
    for index, row in enumerate(targets):
        made[index, : len(row)] = row
    return made


def _cross_entropy(scores: Any, targets: Any, weights: Any | None) -> Any:
    loss = F.cross_entropy(scores, targets, reduction="none").flatten()  # (U,)
    return loss if weights is None else loss * paddle.gather(weights, targets)


def _divergence(scores: Any, teacher: Any, temperature: float) -> Any:
    """T^2 KL(teacher || student) of logits (U, C), both divided by T; T^2 keeps the size of the gradients.

    Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (2015).
    """
    wanted = F.softmax(teacher / temperature, axis=-1)
    known, learnt = F.log_softmax(teacher / temperature, axis=-1), F.log_softmax(scores / temperature, axis=-1)
    return temperature**2 * (wanted * (known - learnt)).sum(axis=-1)
