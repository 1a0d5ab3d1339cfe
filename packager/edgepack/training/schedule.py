"""Which layers learn how fast at each step: warm-up and decay over time, a smaller rate for lower layers, layer maps.

Plain arithmetic, without Paddle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final, Literal

Schedule = Literal["linear", "cosine"]
_LAYER: Final = re.compile(r"\bencoder\.layers\.(\d+)\.")
_EMBEDDINGS: Final = re.compile(r"\bembeddings\.")


def rate_factor(step: int, total: int, warmup: float, schedule: Schedule) -> float:
    """What the peak rate is multiplied with at `step` (from 0 of `total`), from 0 to 1.

    It rises linearly over the first `warmup` (0 to 1) of the steps, and then falls to 0: linearly, or along half a
    cosine (Loshchilov and Hutter, "SGDR", 2017, without restarts).
    """
    warm = max(1, round(warmup * total))
    if step < warm:
        return (step + 1) / warm
    done = min(1.0, (step - warm) / max(1, total - warm))
    return 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def rate_scale(rule: Literal["sqrt", "linear", "none"], ranks: int) -> float:
    """What the peak rate is multiplied with when `ranks` processes make the rows of a step as many times as many.

    The root for AdamW, whose steps do not grow with the gradient (Malladi et al., "On the SDEs and Scaling Rules for
    Adaptive Gradient Algorithms", 2022); linear as for SGD (Goyal et al., "Accurate, Large Minibatch SGD", 2017).
    """
    return {"sqrt": math.sqrt(ranks), "linear": float(ranks), "none": 1.0}[rule]


def layer_ratios(names: Iterable[str], decay: float) -> dict[str, float]:
    """What each parameter's rate is multiplied with: 1 for the head and pooler, `decay` for every layer below.

    The top layer of the encoder thus has `decay`, the one below it its square, and the embeddings the smallest ratio
    (discriminative rates after Howard and Ruder, "Universal Language Model Fine-tuning", 2018).

    Args:
        names: of an ERNIE with its head, as `named_parameters` gives them.
        decay: above 0, at most 1; 1 gives every parameter the ratio 1.
    """
    names = list(names)
    layers = [int(match[1]) for name in names if (match := _LAYER.search(name))]
    count = max(layers, default=-1) + 1
    return {name: decay ** _depth(name, count) for name in names}


def _depth(name: str, layers: int) -> int:
    """How many layers of the encoder and above it stand between a parameter and the loss."""
    if match := _LAYER.search(name):
        return layers - int(match[1])
    return layers + 1 if _EMBEDDINGS.search(name) else 0
