"""Nodes of products and embeddings: float, or the INT8 operators that ONNX Runtime runs fastest.

Weights are symmetric int8 with a step per column, activations are uint8 with a step per tensor, and rows of the word
embedding are symmetric int8 with a step per row.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from onnx import TensorProto

from edgepack.onnx_graph.encoder import Embeddings, Linear, Range, Ranges
from edgepack.onnx_graph.int8_ranges import (
    INT8_MAX,
    REDUCED_MAX,
    column_steps,
    quantize_columns,
    quantize_rows,
    uint8_grid,
)
from edgepack.onnx_graph.utils import MICROSOFT, Writer


class Form(Protocol):
    """Writer of the nodes that differ between float and INT8. One object writes one graph."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        """`source @ weight + bias` over the last axis."""

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        """The rows of `ids` (B, T) of the word embedding, (B, T, H) float32."""


class FloatForm:
    """Float32 with standard operators; ranges are ignored."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        return _product(writer, source, writer.constant(f"{linear.name}.weight", linear.weight), linear)

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        return writer.node("words", "Gather", writer.constant("words.table", embeddings.words), ids)


class OrtCpuForm:
    """INT8 for ONNX Runtime's CPU kernels.

    Every activation is quantized once for all its readers (`QuantizeLinear`, uint8; `DynamicQuantizeLinear` if each run
    computes its range). Each product becomes `com.microsoft.MatMulIntegerToFloat`, which multiplies uint8 x int8,
    rescales per column and adds the bias in one pass. Nothing is rounded twice. The equivalent QDQ form is fused into
    slower kernels (QLinearMatMul: 1.3-1.5 times the time; with int8 activations it is not fused: 6 times).

    Args:
        reduced: weights of 7 bits, for x86 CPUs without VNNI, whose kernels add pairs of products in 16 bits.
    """

    def __init__(self, *, reduced: bool = False) -> None:
        self._largest = REDUCED_MAX if reduced else INT8_MAX
        self._quantized: dict[str, tuple[str, str, str]] = {}  # tensor -> names of (values, step, zero point)

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        if linear.ranges is None:
            return FloatForm().linear(writer, source, linear)
        values, step, zero_point = self._quantize(writer, source, linear.ranges.activation)
        weight, steps = _int8_weight(writer, linear, linear.ranges, self._largest)
        zeros = writer.constant(f"{linear.name}.zeros", np.zeros(len(linear.bias), dtype=np.int8))
        bias = writer.constant(f"{linear.name}.bias", linear.bias)
        inputs = (values, weight, step, steps, zero_point, zeros, bias)
        return writer.node(linear.name, "MatMulIntegerToFloat", *inputs, domain=MICROSOFT)

    def _quantize(self, writer: Writer, source: str, seen: Range | None) -> tuple[str, str, str]:
        """Quantize `source` for its first reader; later readers share the result."""
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
        return _words(writer, ids, embeddings)


def _product(writer: Writer, source: str, weight: str, linear: Linear) -> str:
    """The product of two float tensors plus the bias of `linear`."""
    product = writer.node(f"{linear.name}.product", "MatMul", source, weight)
    return writer.node(linear.name, "Add", product, writer.constant(f"{linear.name}.bias", linear.bias))


def _int8_weight(writer: Writer, linear: Linear, ranges: Ranges, largest: int) -> tuple[str, str]:
    """The weight of `linear` as int8, and its steps (out,)."""
    steps = column_steps(ranges.columns, largest)
    stored = writer.constant(f"{linear.name}.int8", quantize_columns(linear.weight, steps, largest))
    return stored, writer.constant(f"{linear.name}.steps", steps)


def _words(writer: Writer, ids: str, embeddings: Embeddings) -> str:
    """Gather int8 rows, then convert only those that the text uses."""
    if not embeddings.int8:
        return FloatForm().words(writer, ids, embeddings)
    rows, steps = quantize_rows(embeddings.words)
    found = writer.node("words.rows", "Gather", writer.constant("words.int8", rows), ids)  # (B, T, H) int8
    wide = writer.node("words.wide", "Cast", found, to=TensorProto.FLOAT)
    step = writer.node("words.step", "Gather", writer.constant("words.steps", steps), ids)  # (B, T, 1)
    return writer.node("words", "Mul", wide, step)
