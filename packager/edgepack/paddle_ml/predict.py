"""Logits of a Paddle classifier over texts: for dev scores, soft labels and parity, never for a gate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.paddle_ml.models import Classifier, pad
from edgepack.progress import Progress

Float = npt.NDArray[np.float32]


def logits(
    classifier: Classifier, ids: Sequence[Sequence[int]], progress: Progress, label: str, batch_size: int = 64
) -> Float:
    """(N, C) float32, in the order of `ids`; batches are of similar length so that little padding is computed."""
    network = classifier.network
    was_training = network.training
    network.eval()
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    result = np.zeros((len(ids), len(classifier.labels)), dtype=np.float32)
    with progress.task(label, len(ids)) as task, paddle.no_grad():
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            tokens = paddle.to_tensor(pad([ids[index] for index in part]))  # (B, T)
            result[part] = network(tokens, paddle.zeros_like(tokens)).numpy()  # (B, C)
            task.advance(len(part))
    if was_training:
        network.train()
    return result
