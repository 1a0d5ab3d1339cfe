"""Parts of an encoder that are INT8, or float, each as a whole: products of one input, and the embedding of words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from edgepack.graph.encoder import Encoder, Linear

WORDS: Final = "words"
_TOGETHER: Final = ("query", "key", "value")  # of one layer: they read the same and can be one product


def int8_parts(encoder: Encoder) -> tuple[str, ...]:
    """The names of those that are INT8, in the order in which they are computed."""
    words = [WORDS] if encoder.embeddings.int8 else []
    products = [part_of(linear) for linear in encoder.linears() if linear.ranges is not None]
    return tuple(dict.fromkeys([*words, *products]))


def in_float(encoder: Encoder, names: Collection[str]) -> Encoder:
    """The same with the parts called `names` in float."""

    def of(linear: Linear) -> Linear:
        return replace(linear, ranges=None) if part_of(linear) in names else linear

    int8 = encoder.embeddings.int8 and WORDS not in names
    return replace(encoder.with_linears(of), embeddings=replace(encoder.embeddings, int8=int8))


def part_of(linear: Linear) -> str:
    """`layers.0.query_key_value` for each of the three; otherwise a product is a part by itself."""
    layer, _, role = linear.name.rpartition(".")
    return f"{layer}.{'_'.join(_TOGETHER)}" if role in _TOGETHER else linear.name
