"""ERNIE as arrays: `recognise` reads it from an exported graph, and `compose` writes a graph from it.

Changes are simpler on an encoder than on a graph: INT8 matrices, merged products, tokens that the last layer computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Range:
    """Range of an activation tensor, extended to include 0 so that zero is exact."""

    low: float
    high: float

    def union(self, other: Range) -> Range:
        """The smallest range that includes both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True, eq=False)
class Ranges:
    """INT8 ranges of one product.

    Attributes:
        columns: largest magnitude of each column of its weight, (out,).
        activation: range of its input; None if every run computes it.
    """

    activation: Range | None
    columns: Float


@dataclass(frozen=True, eq=False)
class Linear:
    """`x @ weight + bias`, weight (in, out), bias (out,). INT8 with `ranges`, float without."""

    name: str
    weight: Float
    bias: Float
    ranges: Ranges | None = None

    def scaled(self, factor: float) -> Linear:
        """The product with its output multiplied by `factor`."""
        ranges = self.ranges and replace(self.ranges, columns=self.ranges.columns * np.float32(factor))
        return replace(
            self, weight=self.weight * np.float32(factor), bias=self.bias * np.float32(factor), ranges=ranges
        )


def beside(name: str, *several: Linear) -> Linear:
    """Several products of one input as one product (in, sum of out). INT8 if all of them are."""
    known = [one.ranges for one in several if one.ranges is not None]
    ranges = None
    if len(known) == len(several):
        seen = [one.activation for one in known if one.activation is not None]
        together = reduce(Range.union, seen) if len(seen) == len(known) else None
        ranges = Ranges(together, np.concatenate([one.columns for one in known]))
    weight = np.concatenate([one.weight for one in several], axis=1)
    return Linear(name, weight, np.concatenate([one.bias for one in several]), ranges)


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm over the last axis; weight and bias (H,)."""

    weight: Float
    bias: Float
    epsilon: float


@dataclass(frozen=True, eq=False)
class Attention:
    """Self-attention with `heads` heads. `scale` multiplies queries times keys; 1 if the weights include it."""

    query: Linear  # (H, heads x size)
    key: Linear
    value: Linear
    output: Linear  # (heads x size, H)
    heads: int
    scale: float

    @property
    def size(self) -> int:
        """Width of one head."""
        return int(self.query.weight.shape[1]) // self.heads

    def linears(self) -> Iterator[Linear]:
        """All products with weights, in order of computation."""
        yield from (self.query, self.key, self.value, self.output)

    def with_linears(self, change: Callable[[Linear], Linear]) -> Attention:
        """A copy with `change` applied to each of its `linears`."""
        query, key, value, output = map(change, self.linears())
        return replace(self, query=query, key=key, value=value, output=output)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer, normalised after attention and after feed-forward (`up`, exact GELU, `down`)."""

    attention: Attention
    attention_norm: Norm
    up: Linear
    down: Linear
    norm: Norm

    def linears(self) -> Iterator[Linear]:
        """All products with weights, in order of computation."""
        yield from self.attention.linears()
        yield from (self.up, self.down)

    def with_linears(self, change: Callable[[Linear], Linear]) -> Layer:
        """A copy with `change` applied to each of its `linears`."""
        attention = self.attention.with_linears(change)
        return replace(self, attention=attention, up=change(self.up), down=change(self.down))


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings, summed per token and normalised. `int8`: word embeddings are INT8, with a step per row."""

    words: Float  # (vocabulary, H)
    positions: Float  # (positions, H)
    types: Float  # (token types, H)
    task: Float  # (H,); zeros in a model without tasks
    norm: Norm
    int8: bool = False


@dataclass(frozen=True, eq=False)
class Encoder:
    """A classifier of texts; without `pooler`, of tokens.

    `mask` is added to the attention scores of tokens with `pad_id`.
    """

    embeddings: Embeddings
    layers: tuple[Layer, ...]
    pooler: Linear | None
    head: Linear
    pad_id: int
    mask: float

    def linears(self) -> Iterator[Linear]:
        """All products with weights, in order of computation."""
        for layer in self.layers:
            yield from layer.linears()
        if self.pooler is not None:
            yield self.pooler
        yield self.head

    def with_linears(self, change: Callable[[Linear], Linear]) -> Encoder:
        """A copy with `change` applied to each of its `linears`."""
        pooler = None if self.pooler is None else change(self.pooler)
        layers = tuple(layer.with_linears(change) for layer in self.layers)
        return replace(self, layers=layers, pooler=pooler, head=change(self.head))
