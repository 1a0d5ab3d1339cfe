"""How much a trained network's loss hangs on each attention head and each feed-forward neuron.

The importance of a part is the mean over rows of |dL/dm|, L the row's loss and m a factor of 1 before what the part
puts out: the first-order estimate of what the loss changes by when the part is taken away (Michel et al., "Are Sixteen
Heads Really Better than One?", 2019, for heads; Hou et al., "DynaBERT", 2020, for both). For a neuron, dL/dm is the sum
of weight x gradient over what it sends out. The absolute value is taken row by row, so that rows that pull in two
directions do not cancel out, and the size of a batch decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.artifacts import Row
from edgepack.progress import Progress
from edgepack.training.losses import Task
from edgepack.training.models.batches import Examples, loader
from edgepack.training.models.classifiers import Classifier, attentions
from edgepack.training.models.pruning import Importance

Float = npt.NDArray[np.float64]
SAMPLE_ROWS: Final = 512  # labelled rows that are asked
_BATCH_ROWS: Final = 8  # few: gradients need more memory than predictions


def measure(
    classifier: Classifier, task: Task, rows: Sequence[Row], *, balanced: bool, progress: Progress
) -> list[Importance]:
    """Of each layer, without dropout.

    Args:
        classifier: trained, in evaluation mode.
        rows: with labels.
        balanced: as in the loss that it is trained with.
    """
    encoded = classifier.encode(rows)
    targets = [task.target(row, tokens) for row, tokens in zip(rows, encoded, strict=True)]
    objective = task.objective(targets, balanced=balanced)
    order = sorted(range(len(rows)), key=lambda index: len(encoded[index]))  # little padding
    batches = [order[start : start + _BATCH_ROWS] for start in range(0, len(order), _BATCH_ROWS)]
    watch = _Watch(classifier.network)
    with progress.task("importance of heads and neurons", len(rows)) as shown:
        for members, batch in zip(batches, loader(Examples(encoded, targets), batches, objective.collate), strict=True):
            assert batch is not None, "no batch is without rows"
            scores = classifier.network(batch.ids, batch.types).astype("float32")
            _, labelled = objective.units(batch.targets)  # (U,)
            watch.add((objective.hard(scores, batch.targets) * labelled).sum())
            shown.advance(len(members))
    return watch.close(len(rows))


class _Watch:
    """Sees what each layer's heads and neurons put out, and adds up what the loss makes of it."""

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
        """Take in the batch that the network has just read. `loss` is the sum of its rows' losses."""
        # Those of the norms are asked for because Paddle's LayerNorm on a CPU (2.6.2 and 3.3.1) gives a wrong gradient
        # of its input where neither its weight nor its bias needs one: off by 18 % in a trial.
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
        """The means over `rows` rows; the network is left as it was."""
        for hook in self._hooks:
            hook.remove()
        means = [total / rows for total in self._sums]
        return [Importance(heads, neurons) for heads, neurons in zip(means[::2], means[1::2], strict=True)]
