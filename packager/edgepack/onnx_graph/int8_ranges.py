"""INT8 of an encoder: assignment of observed ranges to products, affine grids, and quantizable parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.errors import StageFailedError
from edgepack.onnx_graph.encoder import Encoder, Float, Layer, Linear, Range, Ranges, beside


def with_ranges(encoder: Encoder, seen: Iterable[LinearScales], *, embeddings: bool) -> Encoder:
    """The encoder with ranges of every product; with `embeddings`, its word embedding is INT8 too.

    Queries, keys and values get the union of the ranges of their common input, so that it is quantized once.

    Raises:
        StageFailedError: a product has no ranges, or ranges match no product.
    """
    wanted = {item.weight_sha256: item for item in seen}
    met: set[str] = set()

    def of(linear: Linear) -> Linear:
        digest = weight_digest(linear.weight)
        if digest not in wanted:
            raise StageFailedError(f"quantize: no ranges were observed for {linear.name}")
        met.add(digest)
        found = wanted[digest]
        activation = None if found.activation is None else Range(0.0, 0.0).union(Range(*found.activation))
        return replace(linear, ranges=Ranges(activation, np.asarray(found.weight_abs_max, dtype=np.float32)))

    ranged = encoder.with_linears(of)
    ranged = replace(ranged, layers=tuple(_sharing(layer) for layer in ranged.layers))
    if lost := [item.layer for item in wanted.values() if item.weight_sha256 not in met]:
        raise StageFailedError("quantize: layers with ranges are not in the exported graph", why=", ".join(lost))
    return replace(ranged, embeddings=replace(ranged.embeddings, int8=embeddings))


def _sharing(layer: Layer) -> Layer:
    """The attention with one range for the input of queries, keys and values."""
    attention = layer.attention
    parts = {role: getattr(attention, role) for role in ("query", "key", "value")}
    together = beside("all", *parts.values()).ranges
    assert together is not None, "each of them has ranges"
    shared = {
        role: replace(part, ranges=replace(part.ranges, activation=together.activation)) for role, part in parts.items()
    }
    return replace(layer, attention=replace(attention, **shared))


Int8 = npt.NDArray[np.int8]
INT8_MAX: Final = 127  # symmetric: -128 is not used, so that negation is exact
REDUCED_MAX: Final = 63  # two products of 255 x 63 are 32,130: their sum fits into 16 bits
_SMALLEST: Final = 1e-8  # of a magnitude, so that a column of zeros has a step


def uint8_grid(seen: Range) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Step and zero point, scalars, that map the range `seen` to 0..255."""
    step = np.float32(max(seen.high - seen.low, _SMALLEST) / 255)
    return np.array(step), np.array(np.clip(np.round(-seen.low / step), 0, 255), dtype=np.uint8)


def column_steps(columns: Float, largest: int = INT8_MAX) -> Float:
    """Steps (out,) of a weight that map the magnitude of each column to `largest`."""
    return np.asarray(np.maximum(columns, _SMALLEST) / largest, dtype=np.float32)


def quantize_columns(weight: Float, steps: Float, largest: int = INT8_MAX) -> Int8:
    """Float (in, out) -> symmetric int8. `steps` is (out,), or broadcasts."""
    return np.asarray(np.clip(np.round(weight / steps), -largest, largest), dtype=np.int8)


def quantize_rows(table: Float) -> tuple[Int8, Float]:
    """Float (rows, width) -> symmetric int8 rows, and their steps (rows, 1)."""
    steps = column_steps(np.abs(table).max(axis=1, keepdims=True))
    return quantize_columns(table, steps), steps


WORDS: Final = "words"
_TOGETHER: Final = ("query", "key", "value")  # of one layer: they read the same and can be one product


def int8_parts(encoder: Encoder) -> tuple[str, ...]:
    """The names of the INT8 parts, in order of computation."""
    words = [WORDS] if encoder.embeddings.int8 else []
    products = [part_of(linear) for linear in encoder.linears() if linear.ranges is not None]
    return tuple(dict.fromkeys([*words, *products]))


def in_float(encoder: Encoder, names: Collection[str]) -> Encoder:
    """The encoder with the parts `names` in float."""

    def of(linear: Linear) -> Linear:
        return replace(linear, ranges=None) if part_of(linear) in names else linear

    int8 = encoder.embeddings.int8 and WORDS not in names
    return replace(encoder.with_linears(of), embeddings=replace(encoder.embeddings, int8=int8))


def part_of(linear: Linear) -> str:
    """The part of a product: `layers.0.query_key_value` for each of the three, else its own name."""
    layer, _, role = linear.name.rpartition(".")
    return f"{layer}.{'_'.join(_TOGETHER)}" if role in _TOGETHER else linear.name
