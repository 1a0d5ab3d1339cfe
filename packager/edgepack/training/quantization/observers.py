"""PaddleSlim's observers of activations, and quantization ranges from them by `paddle.quantization.PTQ`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
from paddle.quantization import PTQ, QuantConfig
from paddle.quantization.base_observer import BaseObserver
from paddle.quantization.factory import ObserverFactory
from paddleslim.quant.observers import (
    AbsMaxChannelWiseWeightObserver,
    AbsmaxObserver,
    AVGObserver,
    EMDObserver,
    HistObserver,
    KLObserver,
    MSEObserver,
)

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.tasks.task import Encoded
from edgepack.training.models.classifiers import Classifier

SAMPLE: Final = 1 << 17  # values kept of one tensor, over all rows, for an observer that wants them together


@dataclass(frozen=True)
class _Kind:
    """Settings of one of PaddleSlim's observers."""

    make: Callable[[], Any]
    magnitudes: bool = True  # it means a threshold of magnitudes
    together: bool = False  # it judges one batch


_KINDS: Final = {
    # The grid is asymmetric: an observer that keeps both ends apart wastes no step on one-sided tensors.
    "hist": _Kind(lambda: HistObserver(sign=False, symmetric=False, percent=0.9999), magnitudes=False),
    "kl": _Kind(lambda: KLObserver(bins_count=1024)),
    "mse": _Kind(lambda: MSEObserver(), together=True),
    "emd": _Kind(lambda: EMDObserver(), together=True),
    "avg": _Kind(lambda: AVGObserver()),
    "abs_max": _Kind(lambda: AbsmaxObserver()),
}


class Observers(ObserverFactory):  # type: ignore[misc, unused-ignore]
    """Factory of observers for `QuantConfig`, which calls it for each layer.

    Args:
        name: value of the recipe's `quantize.observer`.
        rows: number of rows that will be observed, one at a time.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__()
        self._kind, self._kept = _KINDS[name], max(1, SAMPLE // rows)

    def _get_class(self) -> type[Watcher]:
        return Watcher

    def _instance(self, layer: Any) -> Watcher:
        return Watcher(self._kind, self._kind.make()._instance(layer), self._kept)


class Watcher(BaseObserver):  # type: ignore[misc, unused-ignore]
    """One of PaddleSlim's observers, and the extremes that it observed."""

    def __init__(self, kind: _Kind, observer: Any, kept: int) -> None:
        super().__init__()
        self._kind, self._observer, self._kept = kind, observer, kept
        self._sample: list[Any] = []
        self._low, self._high = 0.0, 0.0  # zero belongs to every range

    def forward(self, inputs: Any) -> Any:
        """Observe a tensor of any shape and return it."""
        self._low, self._high = min(self._low, float(inputs.min())), max(self._high, float(inputs.max()))
        seen = inputs.abs() if self._kind.magnitudes else inputs
        if self._kind.together:
            values = seen.flatten()
            step = -(-values.shape[0] // self._kept)
            self._sample += [values[::step], values.max().reshape([1])]
        else:
            self._observer(seen)
        return inputs

    def cal_thresholds(self) -> None:
        """Compute the range."""
        if self._sample:
            self._observer(paddle.concat(self._sample))
            self._sample = []
        self._observer.cal_thresholds()

    def range(self) -> tuple[float, float]:
        """Lowest and highest value of the computed range, which includes zero."""
        high = float(self._observer.max_value())
        low = -high if self._kind.magnitudes else float(self._observer.min_value())
        return min(max(low, self._low), 0.0), max(min(high, self._high), 0.0)

    def scales(self) -> Any:
        """As PaddleSlim's."""
        return self._observer.scales()

    def zero_points(self) -> Any:
        """As PaddleSlim's."""
        return self._observer.zero_points()

    def bit_length(self) -> int:
        """8."""
        return int(self._observer.bit_length())

    def quant_axis(self) -> int:
        """-1: one range for the whole tensor."""
        return int(self._observer.quant_axis())


_POOLER: Final = "pooler.dense"


def observe(
    classifier: Classifier, rows: Sequence[Encoded], observer: str, progress: Progress
) -> tuple[LinearScales, ...]:
    """Run the calibration rows one by one, without padding, and return the ranges of every Linear.

    Raises:
        StageFailedError: a layer was never run, or a range is not finite.
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
    """The ranges of every Linear's weight. The device computes those of activations."""
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
    """Whether the output of a layer is unused: ERNIE also runs its pooler when tokens are classified."""
    return classifier.task.per_token and name.endswith(_POOLER)


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
