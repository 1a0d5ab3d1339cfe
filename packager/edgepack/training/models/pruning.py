"""Width pruning: which attention heads and feed-forward neurons of each layer stay, and what is left of its weights.

After Hou et al., "DynaBERT" (2020): every layer keeps the same part of both, those that matter most to the loss. They
stay in the order they had: DynaBERT sorts them by importance so that narrower networks can share the weights of wider
ones, and here is one network. Plain arrays, without Paddle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack.recipe.pretrained_models import part_of

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_WEIGHT: Final = re.compile(r"\.layers\.(\d+)\.(?:self_attn\.)?(\w+)\.(weight|bias)$")


@dataclass(frozen=True)
class Importance:
    """How much the loss hangs on each part of one layer, never negative."""

    heads: Float  # (N,)
    neurons: Float  # (F,)


@dataclass(frozen=True)
class Kept:
    """The parts of one layer that stay, counted from 0, in their order."""

    heads: Int64
    neurons: Int64


def choose(importances: Sequence[Importance], width: float) -> list[Kept]:
    """The most important part of every layer's heads and neurons.

    Args:
        importances: of each layer.
        width: the part that stays, above 0, at most 1; at least one of both stays.
    """
    return [Kept(_largest(layer.heads, width), _largest(layer.neurons, width)) for layer in importances]


def narrowed(weights: Mapping[str, Array], kept: Sequence[Kept], head_size: int) -> dict[str, Array]:
    """The weights of a network, by name, with those of its layers reduced to what is `kept` of each layer."""
    result = {}
    for name, weight in weights.items():
        found = _WEIGHT.search(name)
        result[name] = _part(weight, found[2], kept[int(found[1])], head_size) if found else weight
    return result


def _largest(importance: Float, width: float) -> Int64:
    """Indices, ascending; among equals the first."""
    order = np.argsort(-importance, kind="stable")
    return np.sort(order[: part_of(len(importance), width)])


def _part(weight: Array, layer: str, kept: Kept, head_size: int) -> Array:
    """Of a weight (in, out) or a bias (out,); those of the hidden states and norms stay whole."""
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
