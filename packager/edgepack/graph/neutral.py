"""The neutral quantized form: which tensors become INT8 and with which ranges, for no engine in particular.

A plan names nodes of one float graph. `lower_ort_cpu` turns graph and plan into what one engine runs fastest.
Weights are symmetric int8 with one scale an output column; activations are asymmetric uint8 with one range a
tensor (ONNX's affine form: real = scale x (quantized - zero_point)); embedding rows are symmetric int8 with one scale
a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.errors import StageFailedError
from edgepack.graph.view import GraphView

Float = npt.NDArray[np.float32]
Int8 = npt.NDArray[np.int8]
INT8_MAX = 127  # symmetric: -128 is not used, so that negation is exact and TensorRT accepts the same weights


@dataclass(frozen=True)
class ActivationRange:
    """Range of one activation tensor, widened to hold 0 so that zero is exact."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """Step of the uint8 grid."""
        return np.float32(max(self.high - self.low, 1e-8) / 255)

    @property
    def zero_point(self) -> np.uint8:
        """The grid value that stands for 0.0."""
        return np.uint8(np.clip(np.round(-self.low / self.scale), 0, 255))


@dataclass(frozen=True)
class MatMulPlan:
    """One `MatMul(activation, weight)` whose weight is an initializer of shape (in, out)."""

    output: str  # name of the MatMul's output tensor; node names may be empty, tensor names may not
    activation: str
    weight: str
    weight_scales: Float  # (out,)


@dataclass(frozen=True)
class EmbeddingPlan:
    """One `Gather(table, ids)` of word-embedding rows."""

    output: str
    table: str


@dataclass(frozen=True)
class QuantizationPlan:
    matmuls: tuple[MatMulPlan, ...]
    ranges: dict[str, ActivationRange]  # by activation tensor
    embeddings: tuple[EmbeddingPlan, ...]


def make_plan(model: onnx.ModelProto, linears: Iterable[LinearScales], embeddings: bool) -> QuantizationPlan:
    """Match the observers' ranges to the nodes of the float graph `model`.

    A tensor that several layers read (the input of Q, K and V) gets the union of their ranges, so that it is
    quantized once.

    Raises:
        StageFailedError: when a MatMul with a constant weight has no ranges, or ranges match no MatMul.
    """
    view = GraphView(model)
    wanted = {item.weight_sha256: item for item in linears}
    matmuls: list[MatMulPlan] = []
    ranges: dict[str, ActivationRange] = {}
    met: set[str] = set()
    for node in model.graph.node:
        if node.op_type != "MatMul" or not view.is_constant(node.input[1]):
            continue
        activation, weight = node.input
        digest = weight_digest(view.constant(weight))
        if digest not in wanted:
            raise StageFailedError(f"quantize: no ranges were observed for MatMul weight {weight!r}")
        met.add(digest)
        scales = wanted[digest]
        known = ranges.get(activation, ActivationRange(0.0, 0.0))
        ranges[activation] = ActivationRange(
            min(known.low, scales.activation_min), max(known.high, scales.activation_max)
        )
        step = np.maximum(np.asarray(scales.weight_abs_max, dtype=np.float32), 1e-8) / INT8_MAX  # (out,)
        matmuls.append(MatMulPlan(node.output[0], activation, weight, step.astype(np.float32)))
    if lost := [item.layer for item in wanted.values() if item.weight_sha256 not in met]:
        raise StageFailedError("quantize: layers with ranges are not in the exported graph", why=", ".join(lost))
    return QuantizationPlan(tuple(matmuls), ranges, _word_embeddings(view) if embeddings else ())


def quantize_columns(weight: Float, scales: Float) -> Int8:
    """(in, out) float -> int8, symmetric; `scales` is (out,), one a column, or broadcasts otherwise."""
    return np.asarray(np.clip(np.round(weight / scales), -INT8_MAX, INT8_MAX), dtype=np.int8)


def quantize_rows(table: Float) -> tuple[Int8, Float]:
    """(rows, width) float -> int8 rows and their scales (rows, 1), symmetric, absolute maximum of each row."""
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-8) / INT8_MAX
    return quantize_columns(table, scales), np.asarray(scales, dtype=np.float32)


def _word_embeddings(view: GraphView) -> tuple[EmbeddingPlan, ...]:
    """Gathers by token id itself. Position and type tables are small and stay float."""
    return tuple(
        EmbeddingPlan(node.output[0], node.input[0])
        for node in view.readers.get("input_ids", [])
        if node.op_type == "Gather" and view.is_constant(node.input[0]) and len(view.shape(node.input[0])) == 2
    )
