"""Which products of an encoder are INT8, and with which ranges: what the observers saw, matched by the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from edgepack.errors import StageFailedError
from edgepack.graph.encoder import Encoder, Layer, Linear, Range, Ranges, beside
from edgepack.quantization import LinearScales, weight_digest


def with_ranges(encoder: Encoder, seen: Iterable[LinearScales], *, embeddings: bool) -> Encoder:
    """The encoder with the ranges of every product, and with `embeddings` its rows of words INT8 too.

    Products of one input (queries, keys and values) get the union of what was seen of it, so that it is quantized once.

    Raises:
        StageFailedError: a product has no ranges, or ranges belong to no product.
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
    """With one range for what queries, keys and values read."""
    attention = layer.attention
    parts = {role: getattr(attention, role) for role in ("query", "key", "value")}
    together = beside("all", *parts.values()).ranges
    assert together is not None, "each of them has ranges"
    shared = {
        role: replace(part, ranges=replace(part.ranges, activation=together.activation)) for role, part in parts.items()
    }
    return replace(layer, attention=replace(attention, **shared))
