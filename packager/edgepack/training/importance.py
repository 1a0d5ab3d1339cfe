"""Importance of each attention head and feed-forward neuron of a trained network.

The importance of a part is the mean over rows of |dL/dm|, where L is the loss of the row and m = 1 scales the output of
the part: a first-order estimate of the change of the loss without the part (Michel et al., "Are Sixteen Heads Really
Better than One?", 2019, for heads; Hou et al., "DynaBERT", 2020, for both). The absolute value is taken row by row, so
that rows with opposite signs do not cancel and the batch size has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.artifacts import Row
from edgepack.progress import Progress
from edgepack.tasks.task import TrainingTask
from edgepack.training.models.batches import EncodedRows, loader
from edgepack.training.models.classifiers import Classifier, attentions
from edgepack.training.models.width_pruning import Importance

Float = npt.NDArray[np.float64]
SAMPLE_ROWS: Final = 512
_BATCH_ROWS: Final = 8  # gradients need more memory than predictions


def measure(
    classifier: Classifier, task: TrainingTask, rows: Sequence[Row], *, balanced: bool, progress: Progress
) -> list[Importance]:
    """The importance of the parts of each layer, without dropout.

    Args:
        classifier: trained, in evaluation mode.
        rows: labelled rows.
        balanced: whether the loss gives every class the same weight, as in training.
    """
    encoded = classifier.encode(rows)
    targets = [task.target(row, tokens) for row, tokens in zip(rows, encoded, strict=True)]
    objective = task.objective(targets, balanced=balanced)
    order = sorted(range(len(rows)), key=lambda index: len(encoded[index]))  # little padding
    batches = [order[start : start + _BATCH_ROWS] for start in range(0, len(order), _BATCH_ROWS)]
    watch = _Watch(classifier.network)
    with progress.task("importance of heads and neurons", len(rows)) as shown:
        for members, batch in zip(
            batches, loader(EncodedRows(encoded, targets), batches, objective.collate), strict=True
        ):
            assert batch is not None, "every batch has rows"
            scores = classifier.network(batch.ids, batch.types).astype("float32")
            _, labelled = objective.units(batch.targets)  # (U,)
            watch.add((objective.hard(scores, batch.targets) * labelled).sum())
            shown.advance(len(members))
    return watch.close(len(rows))


class _Watch:
    """Records the output of each layer's heads and neurons, and sums its product with the gradient."""

    def __init__(self, network: Any) -> None:
        self._heads = [attention.num_heads for attention in attentions(network)]
        self._seen: list[Any] = []
        self._sums: list[Float] = []
        self._norms = [
            layer.weight for layer in network.ernie.encoder.sublayers() if isinstance(layer, paddle.nn.LayerNorm)
        ]
        self._hooks = []
        for layer in network.ernie.encoder.layers:
            # In the order in which they are run: (B, T, N x D), then (B, T, F).
            for reader in (layer.self_attn.out_proj, layer.linear2):
                self._hooks.append(reader.register_forward_pre_hook(lambda _, inputs: self._seen.append(inputs[0])))

    def add(self, loss: Any) -> None:
        """Add the batch that the network has just run. `loss` is the sum over its rows."""
        # Gradients of the norms are requested too: on a CPU, Paddle's LayerNorm (2.6.2 and 3.3.1) computes a wrong
        # gradient of its input if neither weight nor bias needs one (18 % off in a trial).
        gradients = paddle.grad([loss], [*self._seen, *self._norms])
        pairs = list(zip(self._seen, gradients[: len(self._seen)], strict=True))
        self._seen.clear()
        found = []
        for heads, (attended, one), (fired, other) in zip(self._heads, pairs[::2], pairs[1::2], strict=True):
            rows, tokens, width = attended.shape
            by_head = (attended * one).reshape([rows, tokens, heads, width // heads])  # (B, T, N, D)
            found += [by_head.sum(axis=[1, 3]), (fired * other).sum(axis=1)]  # (B, N), (B, F)
        totals = [value.abs().sum(axis=0).numpy().astype(np.float64) for value in found]
        self._sums = [sum_ + total for sum_, total in zip(self._sums, totals, strict=True)] if self._sums else totals

    def close(self, rows: int) -> list[Importance]:
        """Remove the hooks; return the means over `rows` rows."""
        for hook in self._hooks:
            hook.remove()
        means = [total / rows for total in self._sums]
        return [Importance(heads, neurons) for heads, neurons in zip(means[::2], means[1::2], strict=True)]
