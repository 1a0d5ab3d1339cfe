"""Quanters of PaddleSlim and Paddle, adapted to round as the INT8 graph (`onnx_graph/int8_operators.py`).

Weights: PaddleSlim's channel-wise abs max has the same grid, 127 steps up and down per column; 63 with 7 bits.

Activations: the graph has one step and 256 values. 0 is one of them, not always the middle.
- Paddle's moving average of the largest magnitude has 127 steps up and down from 0, which wastes values on one-sided
  tensors, and starts with the range 1. Here it decides the width of the range around its calibrated middle, and starts
  calibrated.
- PaddleSlim's LSQ+ always has the values -128 to 127. Its offset may be any number, so that 0 may lie between two
  values; here it is rounded to whole steps. It sets its step from its first 20 batches, which a resumed training would
  repeat; here it starts calibrated. It computes gradients in Python by about twenty passes; here they follow from seven
  operations that Paddle differentiates.
PaddleSlim's PACT learns a clipping threshold before the first of the two; LSQ+ learns it with the step.

Queries, keys and values read one tensor, which the graph quantizes once: they share one quanter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import paddle
from paddle.nn.quant.qat import QuantedLinear
from paddle.quantization import QAT, QuantConfig
from paddle.quantization.base_quanter import BaseQuanter
from paddle.quantization.factory import QuanterFactory
from paddle.quantization.quanters.abs_max import FakeQuanterWithAbsMaxObserverLayer
from paddleslim.quant.quanters import FakeQuanterChannelWiseAbsMaxObserver
from paddleslim.quant.quanters.lsq_act import ActLSQplusQuanterLayer

from edgepack.training.models.classifiers import attentions

Name = Literal["abs_max", "lsq"]
Range = tuple[float, float]
_MOVING_RATE: Final = 0.9  # Paddle's own
_STEPS: Final = 255
_ROW_STEPS: Final = 127  # up and down
_LOWEST, _HIGHEST = -128, 127  # LSQ+'s values
# LSQ+'s parameters are in units of which a step has so many at first: weights are about as large, so that one learning
# rate suits both, whatever a tensor's range is.
_FIRST_STEP: Final = 0.02
_FINEST: Final = _FIRST_STEP / 4  # a step of 0 would divide by it
_SMALLEST: Final = 1e-8  # of a magnitude, so that a row of zeros has a step


class AbsMaxQuanter(BaseQuanter):  # type: ignore[misc, unused-ignore]
    """Quanter whose range follows Paddle's moving average of the largest magnitude, around a fixed middle."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self._quanter = FakeQuanterWithAbsMaxObserverLayer(layer, moving_rate=_MOVING_RATE)
        self._zero = 0  # which of the values 0 to 255 is 0

    def begin(self, low: float, high: float) -> None:
        """Start with this range, which includes 0, as a converged average."""
        self._zero = round(-low / (high - low) * _STEPS)
        reach, seen = (high - low) / 2, 1 / (1 - _MOVING_RATE)  # what Paddle's count of what it has seen tends to
        for name, value in (("_scale", reach), ("_state", seen), ("_accum", seen * reach)):
            getattr(self._quanter, name).set_value(paddle.full([1], value))

    def forward(self, inputs: Any) -> Any:
        """`inputs` of any shape, rounded to the grid; gradients pass unchanged."""
        with paddle.no_grad():
            if self.training:
                middle = self._step() * (_STEPS / 2 - self._zero)
                self._quanter(paddle.stack([inputs.min(), inputs.max()]) - middle)
            step = self._step()
            rounded = (inputs / step).round_().clip_(-self._zero, _STEPS - self._zero) * step
        return _as(rounded, inputs)

    def _step(self) -> Any:
        return self._quanter.scales().reshape([]) / (_STEPS / 2)

    def range(self) -> Range:
        """Lowest and highest value of the graph's range."""
        step = float(self._step())
        return -self._zero * step, (_STEPS - self._zero) * step

    def scales(self) -> Any:
        """As Paddle's."""
        return self._quanter.scales()

    def zero_points(self) -> Any:
        """As Paddle's."""
        return self._quanter.zero_points()

    def bit_length(self) -> int:
        """Bits of a quantized value: always 8."""
        return int(self._quanter.bit_length())

    def quant_axis(self) -> int:
        """-1: one range for the whole tensor."""
        return int(self._quanter.quant_axis())


class LsqQuanter(ActLSQplusQuanterLayer):  # type: ignore[misc, unused-ignore]
    """PaddleSlim's LSQ+ quanter, which learns step and offset of the grid.

    After Esser et al., "Learned Step Size Quantization" (2020), and Bhalgat et al., "LSQ+" (2020).
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(layer, symmetric=False)
        self._unit = 1.0

    def begin(self, low: float, high: float) -> None:
        """Start with this range, which includes 0."""
        step = (high - low) / _STEPS
        self._unit = step / _FIRST_STEP
        self._scale.set_value(paddle.full([1], _FIRST_STEP))
        self._beta.set_value(paddle.full([1], (low - _LOWEST * step) / self._unit))

    def forward(self, activation: Any) -> Any:
        """The tensor of any shape, rounded to the grid.

        Gradients of step and offset equal those of PaddleSlim's `LsqPlusActFunc`, scaled as in the papers.
        """
        slow = 1.0 / math.sqrt(math.prod(activation.shape) * _HIGHEST)
        step, offset = (_slowed(tensor, slow) for tensor in self._grid())
        inside = ((activation - offset) / step).clip(_LOWEST, _HIGHEST)
        return _as(inside.round(), inside) * step + offset

    def _grid(self) -> tuple[Any, Any]:
        """Step and offset as scalars. The offset is a whole number of steps, so that 0 is a value of the grid."""
        step = self._scale.reshape([]).clip(min=_FINEST) * self._unit
        offset = self._beta.reshape([]) * self._unit
        with paddle.no_grad():
            whole = (offset / step).round().clip(-_HIGHEST, -_LOWEST) * step
        return step, _as(whole, offset)

    def range(self) -> Range:
        """Lowest and highest value of the graph's range."""
        step, offset = (float(tensor) for tensor in self._grid())
        whole = round(offset / step)
        return (whole + _LOWEST) * step, (whole + _HIGHEST) * step


def _as(value: Any, learnt: Any) -> Any:
    """`value` with the gradients of `learnt`. A sum with their difference would not equal `value` bit by bit."""
    return value.detach() + (learnt - learnt.detach())


def _slowed(tensor: Any, factor: float) -> Any:
    """`tensor` with gradients scaled by `factor`."""
    return _as(tensor, tensor * factor)


_KINDS: Final = {"abs_max": AbsMaxQuanter, "lsq": LsqQuanter}


class _Quanters(QuanterFactory):  # type: ignore[misc, unused-ignore]
    """Factory of quanters for `QuantConfig`, which calls it for each layer."""

    def __init__(self, name: Name) -> None:
        super().__init__()
        self._kind = _KINDS[name]

    def _get_class(self) -> Any:
        return self._kind


class _Shared(paddle.nn.Layer):  # type: ignore[misc, unused-ignore]
    """One quanter for several products of the same tensor, which is quantized and observed once."""

    def __init__(self, quanter: Any) -> None:
        super().__init__()
        self._quanter = quanter
        self._last: tuple[Any, Any] = (None, None)
        self.begin, self.range = quanter.begin, quanter.range

    def forward(self, inputs: Any) -> Any:
        if self._last[0] is not inputs:
            self._last = (inputs, self._quanter(inputs))
        return self._last[1]


def prepare(
    network: Any, ranges: Mapping[str, Range], quanter: Name, *, embeddings: bool, reduced: bool = False
) -> None:
    """Prepare `network`, in place, to compute as its INT8 graph.

    Args:
        network: one of PaddleNLP's ERNIE classifiers.
        ranges: initial ranges of the inputs of each Linear that becomes INT8, by its name in the network.
        embeddings: whether the word embedding becomes INT8 too.
        reduced: whether weights have 7 bits instead of 8.
    """
    config = QuantConfig(activation=None, weight=None)
    weights = FakeQuanterChannelWiseAbsMaxObserver(bit_length=7 if reduced else 8)
    named = [layer.full_name() for name, layer in network.named_sublayers() if name in ranges]
    config.add_name_config(named, activation=_Quanters(quanter), weight=weights)
    network.train()
    QAT(config).quantize(network, inplace=True)
    for attention in attentions(network):
        shared = _Shared(attention.q_proj.activation_quanter)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            part.activation_quanter = shared
    for name, layer in quantized(network).items():
        layer.activation_quanter.begin(*ranges[name])
    if embeddings:
        network.ernie.embeddings.word_embeddings.register_forward_post_hook(_round_rows)


def quantized(network: Any) -> dict[str, Any]:
    """The products of a prepared network, by name."""
    return {name: layer for name, layer in network.named_sublayers() if isinstance(layer, QuantedLinear)}


def _round_rows(layer: Any, inputs: Any, rows: Any) -> Any:
    """Rows (B, T, H) of the word embedding, each rounded to 127 steps up and down of its largest magnitude."""
    with paddle.no_grad():
        steps = rows.abs().max(axis=-1, keepdim=True).clip(min=_SMALLEST) / _ROW_STEPS  # (B, T, 1)
    return _as((rows / steps).round(), rows / steps) * steps
