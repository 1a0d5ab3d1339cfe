"""What the tasks differ in while a model is trained: targets of rows, the loss, and what logits answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from edgepack.artifacts import Answer, DataArtifact, Row
from edgepack.paddle_ml.batches import Array, Encoded
from edgepack.paddle_ml.objective import NO_UNIT, UNLABELLED, ManyLabels, Objective, OneLabel, Tags, balanced_weights
from edgepack_runtime import answers
from edgepack_runtime.spans import tags_of_spans

Float = npt.NDArray[np.float32]
_NO_OFFSET: Final = (0, 0)  # of [CLS] and [SEP]


class Task(Protocol):
    """One task. `labels` are what the logits mean, in their order."""

    labels: tuple[str, ...]

    def target(self, row: Row, encoded: Encoded) -> Array:
        """What a labelled row teaches."""

    def unlabelled(self, encoded: Encoded) -> Array:
        """The same of a row whose answer nobody knows."""

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        """The loss; `balanced` gives every class of `targets` the same say."""

    def answer(self, logits: Float, row: Row, encoded: Encoded) -> Answer:
        """What the logits of one row, without padding, say; by the code that says it on the device."""


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
        return answers.one_label(self.labels, logits.tolist()).answer


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
        return answers.several_labels(self.labels, logits.tolist()).answer


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
        return answers.spans(self.labels, logits, encoded.offsets, row.text).answer  # logits (T, C)


def task_of(data: DataArtifact) -> Task:
    """The task that the rows are for."""
    if data.task == "token-classification":
        return _TagsOfTokens(data.model_labels)
    return _AnyOfLabels(data.model_labels) if data.multi_label else _OneOfLabels(data.model_labels)


def _spans(row: Row) -> Any:
    assert not isinstance(row.label, str), "the data stage checks what the task needs"
    return row.label
