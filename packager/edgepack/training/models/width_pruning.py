"""Width pruning: choice of the heads and neurons of each layer that stay, and the reduced weights.

After Hou et al., "DynaBERT" (2020): every layer keeps the same share, those most important to the loss. Their order
stays; DynaBERT sorts them so that narrower networks share weights with wider ones. Imports no Paddle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack.recipe.encoder_shapes import kept_at_width

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_WEIGHT: Final = re.compile(r"\.layers\.(\d+)\.(?:self_attn\.)?(\w+)\.(weight|bias)$")


@dataclass(frozen=True)
class Importance:
    """Importance of each head and neuron of one layer, 0 or more."""

    heads: Float  # (N,)
    neurons: Float  # (F,)


@dataclass(frozen=True)
class Kept:
    """Indices of the heads and neurons of one layer that stay, ascending."""

    heads: Int64
    neurons: Int64


def choose(importances: Sequence[Importance], width: float) -> list[Kept]:
    """The most important heads and neurons of every layer.

    Args:
        importances: importance of the parts of each layer.
        width: share that stays, above 0, at most 1. At least one head and one neuron stay.
    """
    return [Kept(_largest(layer.heads, width), _largest(layer.neurons, width)) for layer in importances]


def pruned(weights: Mapping[str, Array], kept: Sequence[Kept], head_size: int) -> dict[str, Array]:
    """The weights of a network by name, reduced to the `kept` parts of each layer."""
    result = {}
    for name, weight in weights.items():
        found = _WEIGHT.search(name)
        result[name] = _part(weight, found[2], kept[int(found[1])], head_size) if found else weight
    return result


def _largest(importance: Float, width: float) -> Int64:
    """Indices of the largest values, ascending; the first of equal ones."""
    order = np.argsort(-importance, kind="stable")
    return np.sort(order[: kept_at_width(len(importance), width)])


def _part(weight: Array, layer: str, kept: Kept, head_size: int) -> Array:
    """The kept part of a weight (in, out) or bias (out,). Hidden size and norms do not change."""
    columns = (kept.heads[:, None] * head_size + np.arange(head_size)).ravel()  # of the heads that stay, (n x D,)
    if layer in ("q_proj", "k_proj", "v_proj"):
        return np.take(weight, columns, axis=-1)
    if layer == "linear1":
        return np.take(weight, kept.neurons, axis=-1)
    if layer == "out_proj" and weight.ndim == 2:
        return np.take(weight, columns, axis=0)
    if layer == "linear2" and weight.ndim == 2:
        return np.take(weight, kept.neurons, axis=0)
    return weight
