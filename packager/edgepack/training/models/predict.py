"""Logits of a Paddle classifier for dev scores, soft labels and parity. Gates use the runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.progress import Progress
from edgepack.tasks.task import Encoded
from edgepack.training.models.batches import pad
from edgepack.training.models.classifiers import Classifier

Float = npt.NDArray[np.float32]


def logits(
    classifier: Classifier, rows: Sequence[Encoded], progress: Progress, label: str, batch_size: int = 64
) -> list[Float]:
    """Logits of each row, in order: float32 (C,), or (T, C) without padding if tokens are classified.

    Batches hold rows of similar length to save padding.
    """
    network = classifier.network
    was_training = network.training
    network.eval()
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    result: list[Float] = [np.empty(0, dtype=np.float32)] * len(rows)
    with progress.task(label, len(rows)) as task, paddle.no_grad():
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            ids = paddle.to_tensor(pad([rows[index].ids for index in part]))  # (B, T)
            types = paddle.to_tensor(pad([rows[index].types for index in part]))  # (B, T)
            found = network(ids, types).numpy()  # (B, C) or (B, T, C)
            for index, row in zip(part, found, strict=True):
                result[index] = row[: len(rows[index])] if row.ndim == 2 else row
            task.advance(len(part))
    if was_training:
        network.train()
    return result
