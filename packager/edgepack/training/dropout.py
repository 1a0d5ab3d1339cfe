"""The random masks of dropout on a CPU, drawn many at a time. Imports no Paddle.

Paddle draws one number after the other for every element, in one thread: of a step that was a sixth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float32]
_LEVELS: Final = 1 << 16  # 16 random bits decide on an element
_AT_ONCE: Final = 1 << 20  # elements whose bits are drawn together: few calls, little memory


class Masks:
    """Masks of one step after the other. They follow from the seed and the order in which they are asked for."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """A step with this seed (not negative) begins."""
        self._bits = np.random.SFC64(seed)

    def take(self, shape: Sequence[int], rate: float) -> Float:
        """0 with the probability `rate`, else the inverse of the chance to be kept, so that the mean stays.

        `rate` counts in steps of 1/65536, and the kept are scaled by what it then is.

        Args:
            shape: of the mask.
            rate: for which `suits` holds.
        """
        count, dropped = math.prod(shape), _levels(rate)
        scale = np.float32(_LEVELS / (_LEVELS - dropped))
        mask = np.empty(count, dtype=np.float32)
        for start in range(0, count, _AT_ONCE):
            part = mask[start : start + _AT_ONCE]
            drawn = self._bits.random_raw(-(-part.size // 4)).view(np.uint16)[: part.size]  # four in 64 bits
            np.multiply(drawn >= np.uint16(dropped), scale, out=part)
        return mask.reshape(shape)


def suits(rate: float) -> bool:
    """Whether masks of this rate can be drawn here: not of one that keeps all or nothing."""
    return 0 < _levels(rate) < _LEVELS


def _levels(rate: float) -> int:
    return round(rate * _LEVELS)
