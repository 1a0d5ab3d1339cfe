"""Quantization ranges from PaddleSlim's observers, through `paddle.quantization.PTQ`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
from paddle.quantization import PTQ, QuantConfig
from paddleslim.quant.observers import AbsMaxChannelWiseWeightObserver

from edgepack.errors import StageFailedError
from edgepack.paddle_ml.batches import Encoded
from edgepack.paddle_ml.models import Classifier
from edgepack.paddle_ml.observers import Observers
from edgepack.progress import Progress
from edgepack.quantization import LinearScales, weight_digest

_POOLER: Final = "pooler.dense"


def observe(
    classifier: Classifier, rows: Sequence[Encoded], observer: str, progress: Progress
) -> tuple[LinearScales, ...]:
    """Run the calibration rows one by one (no padding is observed) and read every Linear's ranges.

    Raises:
        StageFailedError: when a layer was never reached, or a range is not finite.
    """
    config = QuantConfig(activation=None, weight=None)
    config.add_type_config(
        [paddle.nn.Linear], activation=Observers(observer, len(rows)), weight=AbsMaxChannelWiseWeightObserver()
    )
    classifier.network.eval()
    observed = PTQ(config).quantize(classifier.network, inplace=False)
    observed.eval()
    with progress.task(f"calibrate ({observer})", len(rows)) as task, paddle.no_grad():
        for row in rows:
            observed(paddle.to_tensor([list(row.ids)]), paddle.to_tensor([list(row.types)]))  # (1, T) each
            task.advance()
    return tuple(
        _scales(name, layer)
        for name, layer in observed.named_sublayers()
        if type(layer).__name__ == "QuantedLinear" and not _is_unread(name, classifier)
    )


def weights_alone(classifier: Classifier) -> tuple[LinearScales, ...]:
    """The ranges of every Linear's weight; those of activations are left to whoever runs the model."""
    return tuple(
        LinearScales(name, weight_digest(weight), None, column_magnitudes(weight))
        for name, layer in classifier.network.named_sublayers()
        if isinstance(layer, paddle.nn.Linear) and not _is_unread(name, classifier)
        for weight in [layer.weight.numpy()]  # (in, out)
    )


def column_magnitudes(weight: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """The largest magnitude of each column of a weight (in, out)."""
    return tuple(np.abs(weight).max(axis=0).tolist())


def _is_unread(name: str, classifier: Classifier) -> bool:
    """Whether nobody reads what a layer gives: ERNIE runs its pooler also where tokens are classified."""
    return classifier.task == "token-classification" and name.endswith(_POOLER)


def _scales(name: str, layer: Any) -> LinearScales:
    layer.activation_quanter.cal_thresholds()
    layer.weight_quanter.cal_thresholds()
    low, high = layer.activation_quanter.range()
    columns = np.asarray(layer.weight_quanter.scales().numpy(), dtype=np.float32)  # (out,)
    weight = layer.weight.numpy()  # (in, out)
    if not (np.isfinite([low, high]).all() and low < high and columns.shape == (weight.shape[1],)):
        raise StageFailedError(f"quantize: the observer gave no usable range for {name}", why=f"{low} .. {high}")
    return LinearScales(
        layer=name,
        weight_sha256=weight_digest(weight),
        activation=(low, high),
        weight_abs_max=tuple(columns.tolist()),
    )
