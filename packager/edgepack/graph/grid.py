"""The grids of INT8: real = step x (quantized - zero point), ONNX's affine form, and the arrays that lie on one.

Weights and rows are symmetric int8; activations uint8 with a zero point.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from edgepack.graph.encoder import Float, Range

Int8 = npt.NDArray[np.int8]
INT8_MAX: Final = 127  # symmetric: -128 is not used, so that negation is exact
REDUCED_MAX: Final = 63  # two products of 255 x 63 are 32,130: their sum fits into 16 bits
_SMALLEST: Final = 1e-8  # of a magnitude, so that a column of zeros has a step


def uint8_grid(seen: Range) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Step and zero point that spread `seen` over 0 to 255; both are scalars."""
    step = np.float32(max(seen.high - seen.low, _SMALLEST) / 255)
    return np.array(step), np.array(np.clip(np.round(-seen.low / step), 0, 255), dtype=np.uint8)


def column_steps(columns: Float, largest: int = INT8_MAX) -> Float:
    """Steps (out,) of a weight whose columns have these magnitudes; each of them becomes `largest`."""
    return np.asarray(np.maximum(columns, _SMALLEST) / largest, dtype=np.float32)


def quantize_columns(weight: Float, steps: Float, largest: int = INT8_MAX) -> Int8:
    """(in, out) float -> int8, symmetric; `steps` is (out,), one a column, or broadcasts otherwise."""
    return np.asarray(np.clip(np.round(weight / steps), -largest, largest), dtype=np.int8)


def quantize_rows(table: Float) -> tuple[Int8, Float]:
    """(rows, width) float -> int8 rows and their steps (rows, 1), symmetric, by the largest magnitude of each row."""
    steps = column_steps(np.abs(table).max(axis=1, keepdims=True))
    return quantize_columns(table, steps), steps
