"""Random masks of dropout on a CPU, drawn in blocks. Imports no Paddle.

Paddle draws one number per element in one thread, which took a sixth of a training step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float32]
_LEVELS: Final = 1 << 16  # 16 random bits per element
_BLOCK: Final = 1 << 20  # elements drawn at once


class Masks:
    """Dropout masks of one step after the other, decided by the seed and the order of calls."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin a step with this seed (0 or more)."""
        self._bits = np.random.SFC64(seed)

    def take(self, shape: Sequence[int], rate: float) -> Float:
        """A mask of `shape`: 0 with probability `rate`, else 1 / (1 - rate), so that the mean stays 1.

        `rate` is rounded to steps of 1/65536; `is_supported` must hold for it.
        """
        count, dropped = math.prod(shape), _levels(rate)
        scale = np.float32(_LEVELS / (_LEVELS - dropped))
        mask = np.empty(count, dtype=np.float32)
        for start in range(0, count, _BLOCK):
            part = mask[start : start + _BLOCK]
            drawn = self._bits.random_raw(-(-part.size // 4)).view(np.uint16)[: part.size]  # four in 64 bits
            np.multiply(drawn >= np.uint16(dropped), scale, out=part)
        return mask.reshape(shape)


def is_supported(rate: float) -> bool:
    """Whether masks of this rate can be drawn: not if it keeps all or nothing."""
    return 0 < _levels(rate) < _LEVELS


def _levels(rate: float) -> int:
    return round(rate * _LEVELS)
