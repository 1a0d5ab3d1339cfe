"""PaddleSlim's observers of activations, each given what it is able to judge.

The observers differ in what they assume. `HistObserver` reads a signed tensor row by row. The others look for one
magnitude t and mean the range -t to t, but
- `KLObserver` counts bins from the smallest value and reads the threshold as if they began at 0;
- `MSEObserver` and `EMDObserver` keep the threshold of the last batch alone, and `EMDObserver` searches below the
  largest value instead of the largest magnitude.
So the first is given magnitudes, which begin near 0, and the other two one batch: a sample of all rows, in magnitudes.
A range never reaches beyond what was seen, which leaves tensors of one sign the whole grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import paddle
from paddle.quantization.base_observer import BaseObserver
from paddle.quantization.factory import ObserverFactory
from paddleslim.quant.observers import AbsmaxObserver, AVGObserver, EMDObserver, HistObserver, KLObserver, MSEObserver

SAMPLE: Final = 1 << 17  # values kept of one tensor, over all rows, for an observer that wants them together


@dataclass(frozen=True)
class _Kind:
    """How one of PaddleSlim's observers is used."""

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
    """What `QuantConfig` wants: makes an observer for each layer.

    Args:
        name: one of the recipe's `quantize.observer`.
        rows: that will be observed, one at a time.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__()
        self._kind, self._kept = _KINDS[name], max(1, SAMPLE // rows)

    def _get_class(self) -> type[Watcher]:
        return Watcher

    def _instance(self, layer: Any) -> Watcher:
        return Watcher(self._kind, self._kind.make()._instance(layer), self._kept)


class Watcher(BaseObserver):  # type: ignore[misc, unused-ignore]
    """One of PaddleSlim's observers, and the extremes of what passed it."""

    def __init__(self, kind: _Kind, observer: Any, kept: int) -> None:
        super().__init__()
        self._kind, self._observer, self._kept = kind, observer, kept
        self._sample: list[Any] = []
        self._low, self._high = 0.0, 0.0  # zero belongs to every range

    def forward(self, inputs: Any) -> Any:
        """Look at a tensor of any shape and hand it on."""
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
        """Settle on a range."""
        if self._sample:
            self._observer(paddle.concat(self._sample))
            self._sample = []
        self._observer.cal_thresholds()

    def range(self) -> tuple[float, float]:
        """Lowest and highest value that is to be told apart, once they are settled on; zero lies between."""
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
