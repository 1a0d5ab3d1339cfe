"""Losses of the tasks and of distillation (logits, hidden states, token relations), and their targets.

A unit has one answer: a row, or in token classification a token. Losses are per unit, so that the loss of a step does
not depend on the parts in which its rows are run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.artifacts import Answer, DataArtifact, Row
from edgepack.errors import StageFailedError
from edgepack.recipe.pretrained_models import spread
from edgepack.recipe.training import Distill
from edgepack.training.models.batches import Array, Batch, Encoded
from edgepack.training.models.classifiers import attentions
from edgepack_runtime.inference import predictions
from edgepack_runtime.util.spans import tags_of_spans

Float = npt.NDArray[np.float32]
UNLABELLED: Final = -1  # target of a unit without a label: only the teacher's logits count
NO_UNIT: Final = -100  # target of a token without an answer: padding, [CLS], [SEP]


class Objective(Protocol):
    """Losses of a task. `scores` are the network's logits of a batch, `targets` its collated targets."""

    def collate(self, targets: list[Array], tokens: int) -> Array:
        """Targets or soft labels of a batch as one array, padded to `tokens`."""

    def units(self, targets: Any) -> tuple[Any, Any]:
        """Masks (U,), float32: units that count, and units with a label."""

    def count(self, target: Array) -> int:
        """The number of units of one row that count."""

    def hard(self, scores: Any, targets: Any) -> Any:
        """Loss of each unit against its label, (U,); undefined for units without a label."""

    def soft(self, scores: Any, teacher: Any, temperature: float) -> Any:
        """T^2 times the divergence of each unit from the teacher's logits, (U,)."""


class OneLabel:
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


class ManyLabels:
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


class Tags:
    """One of C tags per token: logits (B, T, C), targets (B, T) of tag numbers."""

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


_PARTS = ("q_proj", "k_proj", "v_proj")


class Match:
    """Losses of a student against hidden states and token relations of its teacher, per row.

    hidden: the mean squared difference of the student's hidden states, through a learnt projection to the teacher's
    width, and the teacher's, over all tokens and mapped layers (Jiao et al., "TinyBERT", 2020).
    relations: KL divergence between the scaled products of queries with queries, keys with keys and values with
    values of the student's top layer and the layer mapped to it, each over all tokens (Wang et al., "MiniLMv2", 2021).

    Args:
        student, teacher: PaddleNLP Ernie networks with a head; the teacher is not changed.
        settings: `hidden`, `relations` and `layers` of the recipe.

    Raises:
        StageFailedError: `layers` names layers that one of them does not have.
    """

    def __init__(self, student: Any, teacher: Any, settings: Distill) -> None:
        self._teacher = teacher
        self._hidden, self._relations = settings.hidden, settings.relations
        ours, theirs = student.ernie.config, teacher.ernie.config
        chosen = settings.layers or spread(ours.num_hidden_layers, theirs.num_hidden_layers)
        if len(chosen) != ours.num_hidden_layers or max(chosen) > theirs.num_hidden_layers:
            raise StageFailedError(
                f"student.distill.layers is {list(chosen)}",
                why=f"the student has {ours.num_hidden_layers} layers and the teacher {theirs.num_hidden_layers}",
                fix="name a layer of the teacher, from 1, for each layer of the student, or leave the key out",
            )
        self._map = list(chosen)
        # One group per head of the teacher; fewer for a student that is narrower than that.
        inside = [attentions(network)[0] for network in (student, teacher)]
        narrowest = min(attention.num_heads * attention.head_dim for attention in inside)
        self._groups = min(inside[1].num_heads, narrowest)
        self.projection = paddle.nn.Linear(ours.hidden_size, theirs.hidden_size)
        self._seen: dict[str, list[Any]] = {"student": [], "teacher": []}
        if self._relations:
            self._watch(student, "student", len(self._map) - 1)
            self._watch(teacher, "teacher", self._map[-1] - 1)

    @property
    def needs_hidden_states(self) -> bool:
        """Whether the student's network must return its hidden states."""
        return self._hidden

    def clear(self) -> None:
        """Drop the recorded outputs of a batch that is not continued."""
        for seen in self._seen.values():
            seen.clear()

    def loss(self, hidden_states: Sequence[Any], batch: Batch) -> Any:
        """Loss (B,) of each row of the batch that the student has just run.

        Args:
            hidden_states: of the student, embeddings first, each (B, T, H); used with `hidden` only.
        """
        mask = (batch.ids != 0).astype("float32")  # (B, T)
        with paddle.no_grad():
            output = self._teacher(batch.ids, batch.types, output_hidden_states=self._hidden, return_dict=True)
        total = paddle.zeros([batch.ids.shape[0]])
        if self._hidden:
            total = total + self._hidden_loss(hidden_states, output.hidden_states, mask)
        if self._relations:
            total = total + self._relation_loss(mask)
        return total

    def _hidden_loss(self, ours: Sequence[Any], theirs: Sequence[Any], mask: Any) -> Any:
        losses = []
        for layer, teacher_layer in enumerate(self._map, start=1):
            difference = self.projection(ours[layer]) - theirs[teacher_layer]  # (B, T, H of the teacher)
            token_losses = (difference * difference).mean(axis=-1)  # (B, T)
            losses.append((token_losses * mask).sum(axis=-1) / mask.sum(axis=-1))
        return sum(losses) / len(losses)

    def _relation_loss(self, mask: Any) -> Any:
        pairs = list(zip(self._seen["student"], self._seen["teacher"], strict=True))
        self.clear()
        return sum(self._divergence(ours, theirs, mask) for ours, theirs in pairs) / len(pairs)

    def _divergence(self, ours: Any, theirs: Any, mask: Any) -> Any:
        hidden = (mask - 1).unsqueeze([1, 2]) * 1e4  # (B, 1, 1, T): padding has no relations
        wanted, learnt = (self._relation(states) + hidden for states in (theirs.detach(), ours))  # (B, R, T, T)
        known = F.log_softmax(wanted, axis=-1)
        divergence = (known.exp() * (known - F.log_softmax(learnt, axis=-1))).sum(axis=-1).mean(axis=1)  # (B, T)
        return (divergence * mask).sum(axis=-1) / mask.sum(axis=-1)

    def _relation(self, states: Any) -> Any:
        """(B, T, H) -> (B, R, T, T): scaled products of tokens with tokens, in R groups of H."""
        rows, tokens, width = states.shape
        part = width // self._groups
        split = states[:, :, : part * self._groups].reshape([rows, tokens, self._groups, part]).transpose([0, 2, 1, 3])
        return paddle.matmul(split, split, transpose_y=True) / math.sqrt(part)

    def _watch(self, network: Any, who: str, layer: int) -> None:
        attention = network.ernie.encoder.layers[layer].self_attn

        def keep(module: Any, inputs: Any, output: Any) -> None:
            if network.training or who == "teacher":  # the evaluation of a student has no loss
                self._seen[who].append(output)

        for part in _PARTS:
            getattr(attention, part).register_forward_post_hook(keep)


_NO_OFFSET: Final = (0, 0)  # of [CLS] and [SEP]


class LabelTask(Protocol):
    """A classification task. `labels` are the meanings of the logits, in order."""

    labels: tuple[str, ...]

    def target(self, row: Row, encoded: Encoded) -> Array:
        """The target of a labelled row."""

    def unlabelled(self, encoded: Encoded) -> Array:
        """The target of a row without a label."""

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        """The loss. `balanced` gives every class of `targets` the same total weight."""

    def answer(self, logits: Float, row: Row, encoded: Encoded) -> Answer:
        """The answer of the logits of one row, without padding, computed by the device's code."""


class _OneOfLabels:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self._index = {label: index for index, label in enumerate(labels)}

    def target(self, row: Row, encoded: Encoded) -> Array:
        assert isinstance(row.label, str), "the data stage checks what the task needs"
        return np.array(self._index[row.label], dtype=np.int64)  # ()

    def unlabelled(self, encoded: Encoded) -> Array:
        return np.array(UNLABELLED, dtype=np.int64)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        return OneLabel(balanced_weights(targets, len(self.labels)) if balanced else None)

    def answer(self, logits: Float, row: Row, encoded: Encoded) -> Answer:
        return predictions.one_label(self.labels, logits.tolist()).answer


class _AnyOfLabels:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels

    def target(self, row: Row, encoded: Encoded) -> Array:
        return np.array([label in row.names for label in self.labels], dtype=np.float32)  # (C,)

    def unlabelled(self, encoded: Encoded) -> Array:
        return np.full(len(self.labels), UNLABELLED, dtype=np.float32)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        return ManyLabels()

    def answer(self, logits: Float, row: Row, encoded: Encoded) -> Answer:
        return predictions.several_labels(self.labels, logits.tolist()).answer


class _TagsOfTokens:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self._index = {label: index for index, label in enumerate(labels)}

    def target(self, row: Row, encoded: Encoded) -> Array:
        tags = tags_of_spans(_spans(row), encoded.offsets)
        numbers = [
            NO_UNIT if offset == _NO_OFFSET else self._index[tag]
            for tag, offset in zip(tags, encoded.offsets, strict=True)
        ]
        return np.array(numbers, dtype=np.int64)  # (T,)

    def unlabelled(self, encoded: Encoded) -> Array:
        numbers = [NO_UNIT if offset == _NO_OFFSET else UNLABELLED for offset in encoded.offsets]
        return np.array(numbers, dtype=np.int64)  # (T,)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        return Tags(balanced_weights(targets, len(self.labels)) if balanced else None)

    def answer(self, logits: Float, row: Row, encoded: Encoded) -> Answer:
        return predictions.spans(self.labels, logits.tolist(), encoded.offsets, row.text).answer  # logits (T, C)


def task_of(data: DataArtifact) -> LabelTask:
    """The task of the rows."""
    if data.task == "token-classification":
        return _TagsOfTokens(data.model_labels)
    return _AnyOfLabels(data.model_labels) if data.multi_label else _OneOfLabels(data.model_labels)


def _spans(row: Row) -> Any:
    assert not isinstance(row.label, str), "the data stage checks what the task needs"
    return row.label
