"""Attention and dropout as a training on a CPU computes them: what Paddle computes, in less time.

Losses and gradients are Paddle's to the last bit where nothing is dropped. Dropout draws other numbers (`dropout`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.training.dropout import Masks, suits

_SCALED: Final = "upscale_in_train"  # Paddle's name of the dropout that is meant here; its other one is of old models


class Draw:
    """What the layers of one network share in a step: the masks of its dropout, and that of its padding."""

    def __init__(self) -> None:
        self._masks = Masks()
        self._padding: tuple[Any, Any] | None = None

    def begin(self, seed: int) -> None:
        """A step begins; its dropout follows from `seed` alone."""
        self._masks.begin(seed)
        self._padding = None

    def drop(self, values: Any, rate: float) -> Any:
        """`values` with dropout."""
        return values * _tensor(self._masks.take(values.shape, rate))

    def padding(self, mask: Any, shape: list[int]) -> Any:
        """`mask` (B, 1, 1, T), which every layer is given, as (B, heads, T, T), made once a forward pass.

        Paddle's addition of a small tensor to a large one takes ten times as long as that of two alike.
        """
        if self._padding is None or self._padding[0] is not mask or self._padding[1].shape != shape:
            self._padding = (mask, _tensor(np.ascontiguousarray(np.broadcast_to(mask.numpy(), shape))))
        return self._padding[1]


def take_over(network: Any) -> Draw:
    """Let the attention and dropout layers of `network` compute as this module does, while they train on a CPU.

    Weights, their names, hooks on projections, evaluation and export stay as they are. On a GPU nothing changes.
    """
    draw = Draw()
    if not str(paddle.get_device()).startswith("cpu"):
        return draw
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.MultiHeadAttention) and (not layer.dropout or suits(layer.dropout)):
            layer.forward = partial(_attend, layer, draw)
        elif isinstance(layer, paddle.nn.Dropout) and suits(layer.p) and layer.axis is None and layer.mode == _SCALED:
            layer.forward = partial(_drop, layer, draw)
    return draw


def _drop(layer: Any, draw: Draw, values: Any) -> Any:
    return draw.drop(values, layer.p) if layer.training else type(layer).forward(layer, values)


def _attend(
    layer: Any, draw: Draw, query: Any, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None
) -> Any:
    """Multi-head attention of `query` (B, T, H) to itself; what is beyond that is left to Paddle."""
    itself = all(other is None or other is query for other in (key, value))
    floating = attn_mask is None or attn_mask.dtype == query.dtype
    if not (layer.training and itself and floating) or layer.need_weights or cache is not None:
        return type(layer).forward(layer, query, key, value, attn_mask, cache)
    rows, tokens, _ = query.shape

    def heads(projected: Any) -> Any:
        return projected.reshape([rows, tokens, layer.num_heads, layer.head_dim]).transpose([0, 2, 1, 3])

    # Scaled before it is split, which changes no value.
    queries = heads(layer.q_proj(query) * layer.head_dim**-0.5)  # (B, heads, T, head_dim)
    keys, values = heads(layer.k_proj(query)), heads(layer.v_proj(query))
    product = paddle.matmul(queries, keys, transpose_y=True)  # (B, heads, T, T)
    if attn_mask is not None:
        padding = draw.padding(attn_mask, product.shape)
        with paddle.no_grad():  # a constant has no part in the gradient, and nobody needs the product without it
            product.add_(padding)
    weights = F.softmax_(product)
    if layer.dropout:
        weights = draw.drop(weights, layer.dropout)
    told = paddle.matmul(weights, values).transpose([0, 2, 1, 3])  # (B, T, heads, head_dim)
    return layer.out_proj(told.reshape([rows, tokens, layer.num_heads * layer.head_dim]))


def _tensor(array: npt.NDArray[np.float32]) -> Any:
    """A tensor of the array's own memory: `paddle.to_tensor` would copy it."""
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())
