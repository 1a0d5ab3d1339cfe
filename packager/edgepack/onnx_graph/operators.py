"""How products and embeddings are written: float, or INT8 as ONNX Runtime runs it fastest.

Weights are symmetric int8 with a step for each column, activations lie on one grid a tensor, rows of the word
embedding are symmetric int8 with a step each.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from onnx import TensorProto

from edgepack.onnx_graph.encoder import Embeddings, Linear, Range, Ranges
from edgepack.onnx_graph.quantize import (
    INT8_MAX,
    REDUCED_MAX,
    column_steps,
    quantize_columns,
    quantize_rows,
    uint8_grid,
)
from edgepack.onnx_graph.utils import MICROSOFT, Writer


class Form(Protocol):
    """Writes what differs between float and INT8. One object writes one graph."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        """`source @ weight + bias` over the last axis."""

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        """The rows of `ids` (B, T) of the word embedding, (B, T, H) float32."""


class FloatForm:
    """Standard operators alone, all float32, whatever ranges there are."""

    def linear(self, writer: Writer, source: str, linear: Linear) -> str:
        return _product(writer, source, writer.constant(f"{linear.name}.weight", linear.weight), linear)

    def words(self, writer: Writer, ids: str, embeddings: Embeddings) -> str:
        return writer.node("words", "Gather", writer.constant("words.table", embeddings.words), ids)


class OrtCpuForm:
    """For ONNX Runtime's CPU kernels.

    Every activation is quantized once (`QuantizeLinear`, uint8, or `DynamicQuantizeLinear` where its range is found in
    each run, by what is in it), whoever reads it; each product becomes
    `com.microsoft.MatMulIntegerToFloat`, which multiplies uint8 x int8, rescales by column and adds the bias in one
    pass. Nothing is requantized, so no rounding is paid twice. Plain QDQ, which means the same, is fused into slower
    kernels (QLinearMatMul: 1.3-1.5 times the time; with int8 activations not fused at all: 6 times).

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
        return _words(writer, ids, embeddings)


def _product(writer: Writer, source: str, weight: str, linear: Linear) -> str:
    """The product of two float tensors, and the bias of `linear`."""
    product = writer.node(f"{linear.name}.product", "MatMul", source, weight)
    return writer.node(linear.name, "Add", product, writer.constant(f"{linear.name}.bias", linear.bias))


def _int8_weight(writer: Writer, linear: Linear, ranges: Ranges, largest: int) -> tuple[str, str]:
    """The weight of `linear` as int8, and its steps (out,)."""
    steps = column_steps(ranges.columns, largest)
    stored = writer.constant(f"{linear.name}.int8", quantize_columns(linear.weight, steps, largest))
    return stored, writer.constant(f"{linear.name}.steps", steps)


def _words(writer: Writer, ids: str, embeddings: Embeddings) -> str:
    """Rows gathered as they are stored, so that only those that a text uses are ever converted."""
    if not embeddings.int8:
        return FloatForm().words(writer, ids, embeddings)
    rows, steps = quantize_rows(embeddings.words)
    found = writer.node("words.rows", "Gather", writer.constant("words.int8", rows), ids)  # (B, T, H) int8
    wide = writer.node("words.wide", "Cast", found, to=TensorProto.FLOAT)
    step = writer.node("words.step", "Gather", writer.constant("words.steps", steps), ids)  # (B, T, 1)
    return writer.node("words", "Mul", wide, step)
