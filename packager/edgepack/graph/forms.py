"""How products and embeddings are written: float, or INT8 as an engine runs it fastest.

ONNX's affine form: real = step x (quantized - zero point). Weights are symmetric int8 with a step for each column,
activations uint8 with one step, rows of the word embedding symmetric int8 with a step each.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from edgepack.graph.encoder import Embeddings, Float, Linear, Range
from edgepack.graph.writer import MICROSOFT, Writer

Int8 = npt.NDArray[np.int8]
INT8_MAX: Final = 127  # symmetric: -128 is not used, so that negation is exact and TensorRT accepts the same weights
_SMALLEST: Final = 1e-8  # of a magnitude, so that a column of zeros has a step


class Form(Protocol):
    """Writes what differs between engines. One object writes one graph."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        """`source @ weight + bias` over the last axis."""

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        """The rows of `ids` (B, T) of the word embedding, (B, T, H) float32."""


class FloatForm:
    """Standard operators alone, all float32, whatever ranges there are."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        product = writer.node(
            f"{linear.name}.product", "MatMul", source, writer.constant(f"{linear.name}.weight", linear.weight)
        )
        return writer.node(linear.name, "Add", product, writer.constant(f"{linear.name}.bias", linear.bias))

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        return writer.node("words", "Gather", writer.constant("words.table", embeddings.words), ids)


class OrtCpuForm:
    """For ONNX Runtime's CPU kernels.

    Every activation is quantized once (`QuantizeLinear`, uint8, or `DynamicQuantizeLinear` where its range is found in
    each run, by what is in it), whoever reads it; each product becomes
    `com.microsoft.MatMulIntegerToFloat`, which multiplies uint8 x int8, rescales by column and adds the bias in one
    pass. Nothing is requantized, so no rounding is paid twice. Plain QDQ, which says the same, is fused into slower
    kernels by this engine (QLinearMatMul: 1.3-1.5 times; with int8 activations not fused at all: 6 times).
    """

    def __init__(self) -> None:
        self._float = FloatForm()
        self._quantized: dict[str, tuple[str, str, str]] = {}  # tensor -> names of (values, step, zero point)

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        if linear.ranges is None:
            return self._float.linear(writer, source, linear)
        values, step, zero_point = self._quantize(writer, source, linear.ranges.activation)
        steps = column_steps(linear.ranges.columns)
        inputs = (
            values,
            writer.constant(f"{linear.name}.int8", quantize_columns(linear.weight, steps)),
            step,
            writer.constant(f"{linear.name}.steps", steps),
            zero_point,
            writer.constant(f"{linear.name}.zeros", np.zeros(len(steps), dtype=np.int8)),
            writer.constant(f"{linear.name}.bias", linear.bias),
        )
        return writer.node(linear.name, "MatMulIntegerToFloat", *inputs, domain=MICROSOFT)

    def _quantize(self, writer: Writer, source: str, seen: Range | None) -> tuple[str, str, str]:
        """Quantize `source` where it is first read; later readers share the result."""
        if source not in self._quantized:
            names = (f"{source}.uint8", f"{source}.step", f"{source}.zero")
            if seen is None:
                writer.several(names[0], "DynamicQuantizeLinear", source, outputs=names)
            else:
                step, zero_point = uint8_grid(seen)
                grid = writer.constant(names[1], step), writer.constant(names[2], zero_point)
                writer.node(names[0], "QuantizeLinear", source, *grid)
            self._quantized[source] = names
        return self._quantized[source]

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        """Only the rows that a text uses are ever converted."""
        if not embeddings.int8:
            return self._float.words(writer, ids, embeddings)
        rows, steps = quantize_rows(embeddings.words)
        found = writer.node("words.rows", "Gather", writer.constant("words.int8", rows), ids)  # (B, T, H) int8
        wide = writer.node("words.wide", "Cast", found, to=TensorProto.FLOAT)
        step = writer.node("words.step", "Gather", writer.constant("words.steps", steps), ids)  # (B, T, 1)
        return writer.node("words", "Mul", wide, step)


def uint8_grid(seen: Range) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Step and zero point that spread `seen` over 0 to 255; both are scalars."""
    step = np.float32(max(seen.high - seen.low, _SMALLEST) / 255)
    return np.array(step), np.array(np.clip(np.round(-seen.low / step), 0, 255), dtype=np.uint8)


def column_steps(columns: Float) -> Float:
    """Steps (out,) of a weight whose columns have these magnitudes."""
    return np.asarray(np.maximum(columns, _SMALLEST) / INT8_MAX, dtype=np.float32)


def quantize_columns(weight: Float, steps: Float) -> Int8:
    """(in, out) float -> int8, symmetric; `steps` is (out,), one a column, or broadcasts otherwise."""
    return np.asarray(np.clip(np.round(weight / steps), -INT8_MAX, INT8_MAX), dtype=np.int8)


def quantize_rows(table: Float) -> tuple[Int8, Float]:
    """(rows, width) float -> int8 rows and their steps (rows, 1), symmetric, by the largest magnitude of each row."""
    steps = column_steps(np.abs(table).max(axis=1, keepdims=True))
    return quantize_columns(table, steps), steps
