"""ERNIE as arrays: what `recognise` reads out of an exported graph, and what `compose` writes a graph from.

Between the two stand changes that are easier to say of an encoder than of a graph: which matrices become INT8, which
products are one, which tokens the last layer computes.
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
    """What an activation tensor was seen to hold, widened to hold 0 so that zero is exact."""

    low: float
    high: float

    def union(self, other: Range) -> Range:
        """The range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True, eq=False)
class Ranges:
    """What INT8 needs to know of one product. `columns` (out,): the largest magnitude of each column of its weight.

    Without a range of its `activation` that is found anew in each run.
    """

    activation: Range | None
    columns: Float


@dataclass(frozen=True, eq=False)
class Linear:
    """`x @ weight + bias`, weight (in, out), bias (out,). With `ranges` it is to be INT8, without them float."""

    name: str
    weight: Float
    bias: Float
    ranges: Ranges | None = None

    def scaled(self, factor: float) -> Linear:
        """The one that gives `factor` times as much."""
        ranges = self.ranges and replace(self.ranges, columns=self.ranges.columns * np.float32(factor))
        return replace(
            self, weight=self.weight * np.float32(factor), bias=self.bias * np.float32(factor), ranges=ranges
        )


def beside(name: str, *several: Linear) -> Linear:
    """One product in place of several of the same input: (in, sum of out). INT8 if all of them are."""
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
    """Self-attention of `heads` heads; `scale` multiplies queries times keys, and is 1 where it is in the weights."""

    query: Linear  # (H, heads x size)
    key: Linear
    value: Linear
    output: Linear  # (heads x size, H)
    heads: int
    scale: float

    @property
    def size(self) -> int:
        """Of one head."""
        return int(self.query.weight.shape[1]) // self.heads

    def linears(self) -> Iterator[Linear]:
        """All products with weights, in the order in which they are computed."""
        yield from (self.query, self.key, self.value, self.output)

    def with_linears(self, change: Callable[[Linear], Linear]) -> Attention:
        """The same with each of its `linears` replaced by what `change` makes of it."""
        query, key, value, output = map(change, self.linears())
        return replace(self, query=query, key=key, value=value, output=output)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer, normalised after each of its two halves; GELU, the exact one, lies between `up` and `down`."""

    attention: Attention
    attention_norm: Norm
    up: Linear
    down: Linear
    norm: Norm

    def linears(self) -> Iterator[Linear]:
        """All products with weights, in the order in which they are computed."""
        yield from self.attention.linears()
        yield from (self.up, self.down)

    def with_linears(self, change: Callable[[Linear], Linear]) -> Layer:
        """The same with each of its `linears` replaced by what `change` makes of it."""
        attention = self.attention.with_linears(change)
        return replace(self, attention=attention, up=change(self.up), down=change(self.down))


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Rows that are summed for each token, then normalised. `int8`: rows of words are stored so, with a scale each."""

    words: Float  # (vocabulary, H)
    positions: Float  # (positions, H)
    types: Float  # (token types, H)
    task: Float  # (H,); zeros in a model without tasks
    norm: Norm
    int8: bool = False


@dataclass(frozen=True, eq=False)
class Encoder:
    """A classifier of texts, or without `pooler` of tokens.

    `pad_id` marks the tokens that attention does not see: `mask` is added to what they score.
    """

    embeddings: Embeddings
    layers: tuple[Layer, ...]
    pooler: Linear | None
    head: Linear
    pad_id: int
    mask: float

    def linears(self) -> Iterator[Linear]:
        """All products with weights, from the first to the last."""
        for layer in self.layers:
            yield from layer.linears()
        if self.pooler is not None:
            yield self.pooler
        yield self.head

    def with_linears(self, change: Callable[[Linear], Linear]) -> Encoder:
        """The same with each of its `linears` replaced by what `change` makes of it."""
        pooler = None if self.pooler is None else change(self.pooler)
        layers = tuple(layer.with_linears(change) for layer in self.layers)
        return replace(self, layers=layers, pooler=pooler, head=change(self.head))
