"""Faster attention and dropout layers for training on a CPU.

Without dropout, losses and gradients equal Paddle's bit by bit. Dropout draws other random numbers (`dropout.Masks`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.training.dropout import Masks, is_supported

_SCALED: Final = "upscale_in_train"  # Paddle's name for dropout that scales during training


class Draw:
    """State that the layers of a network share in a step: dropout masks and the padding mask."""

    def __init__(self) -> None:
        self._masks = Masks()
        self._padding: tuple[Any, Any] | None = None

    def begin(self, seed: int) -> None:
        """Begin a step. `seed` decides its dropout."""
        self._masks.begin(seed)
        self._padding = None

    def drop(self, values: Any, rate: float) -> Any:
        """`values` with dropout."""
        return values * _tensor(self._masks.take(values.shape, rate))

    def padding(self, mask: Any, shape: list[int]) -> Any:
        """`mask` (B, 1, 1, T) broadcast to `shape` (B, heads, T, T), once per forward pass.

        Paddle's addition with broadcasting takes ten times as long as the addition of equal shapes.
        """
        if self._padding is None or self._padding[0] is not mask or self._padding[1].shape != shape:
            self._padding = (mask, _tensor(np.ascontiguousarray(np.broadcast_to(mask.numpy(), shape))))
        return self._padding[1]


def replace_layers(network: Any) -> Draw:
    """Replace the forward functions of attention and dropout layers while `network` trains on a CPU.

    Weights, names, hooks on projections, evaluation and export do not change. On a GPU nothing is replaced.
    """
    draw = Draw()
    if not str(paddle.get_device()).startswith("cpu"):
        return draw
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.MultiHeadAttention) and (not layer.dropout or is_supported(layer.dropout)):
            layer.forward = partial(_attend, layer, draw)
        elif (
            isinstance(layer, paddle.nn.Dropout)
            and is_supported(layer.p)
            and layer.axis is None
            and layer.mode == _SCALED
        ):
            layer.forward = partial(_drop, layer, draw)
    return draw


def _drop(layer: Any, draw: Draw, values: Any) -> Any:
    return draw.drop(values, layer.p) if layer.training else type(layer).forward(layer, values)


def _attend(
    layer: Any, draw: Draw, query: Any, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None
) -> Any:
    """Multi-head self-attention of `query` (B, T, H); other cases are left to Paddle."""
    itself = all(other is None or other is query for other in (key, value))
    floating = attn_mask is None or attn_mask.dtype == query.dtype
    if not (layer.training and itself and floating) or layer.need_weights or cache is not None:
        return type(layer).forward(layer, query, key, value, attn_mask, cache)
    rows, tokens, _ = query.shape

    def heads(projected: Any) -> Any:
        return projected.reshape([rows, tokens, layer.num_heads, layer.head_dim]).transpose([0, 2, 1, 3])

    # Scaled before the split, which gives the same values.
    queries = heads(layer.q_proj(query) * layer.head_dim**-0.5)  # (B, heads, T, head_dim)
    keys, values = heads(layer.k_proj(query)), heads(layer.v_proj(query))
    product = paddle.matmul(queries, keys, transpose_y=True)  # (B, heads, T, T)
    if attn_mask is not None:
        padding = draw.padding(attn_mask, product.shape)
        with paddle.no_grad():  # a constant has no gradient, and the unpadded product is not needed
            product.add_(padding)
    weights = F.softmax_(product)
    if layer.dropout:
        weights = draw.drop(weights, layer.dropout)
    attended = paddle.matmul(weights, values).transpose([0, 2, 1, 3])  # (B, T, heads, head_dim)
    return layer.out_proj(attended.reshape([rows, tokens, layer.num_heads * layer.head_dim]))


def _tensor(array: npt.NDArray[np.float32]) -> Any:
    """A tensor that shares the memory of `array`; `paddle.to_tensor` would copy it."""
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())
