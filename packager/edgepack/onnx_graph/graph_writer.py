"""Writer of the ONNX graph of an encoder, with as little computation as possible.

Every rewrite of a `Layout` is exact up to float32 rounding. Each can be switched on alone, so that it is tested and
timed separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from edgepack.onnx_graph.encoder import Attention, Embeddings, Encoder, Layer, Linear, Norm, beside
from edgepack.onnx_graph.int8_operators import FloatForm, Form
from edgepack.onnx_graph.recognise import IDS, TYPES
from edgepack.onnx_graph.utils import Writer

OUTPUT: Final = "logits"  # what the runtime asks for


@dataclass(frozen=True)
class Layout:
    """Exact rewrites of the graph.

    Attributes:
        folded: position and task embeddings (with `one_text` also the token type) are added up to one table.
        scaled: the scale of attention is multiplied into the query weights.
        merged: queries, keys and values are one product.
        first_only: the last layer computes only the first token, if nothing else is read.
        unpadded: the graph has no mask and must not get padding. A text that spells "[PAD]" gets another answer.
        one_text: the graph has no input of token types, because a single text has one type.
        tokens: length of the longest text, and of the position table.
    """

    folded: bool = False
    scaled: bool = False
    merged: bool = False
    first_only: bool = False
    unpadded: bool = False
    one_text: bool = False
    tokens: int | None = None


PLAIN: Final = Layout()


def fastest(*, pairs: bool, tokens: int | None = None) -> Layout:
    """All rewrites, for texts of at most `tokens`. Pairs of texts need token types."""
    return Layout(
        folded=True, scaled=True, merged=True, first_only=True, unpadded=True, one_text=not pairs, tokens=tokens
    )


def compose(encoder: Encoder, layout: Layout, form: Form | None = None) -> onnx.ModelProto:
    """The graph of `encoder`.

    Its inputs are int64 (B, T); its output `logits` is float32, (B, labels), or (B, T, labels) without a pooler.
    """
    return _Composing(encoder, layout, form or FloatForm()).model()


class _Composing:
    def __init__(self, encoder: Encoder, layout: Layout, form: Form) -> None:
        self.encoder, self.layout, self.form = encoder, layout, form
        self.writer = Writer()

    def model(self) -> onnx.ModelProto:
        encoder, layout = self.encoder, self.layout
        hidden = self.embed(encoder.embeddings)  # (B, T, H)
        mask = None if layout.unpadded else self.mask()
        last = len(encoder.layers) - 1
        of_texts = encoder.pooler is not None
        for number, layer in enumerate(encoder.layers):
            first_only = layout.first_only and of_texts and number == last
            hidden = self.layer(f"layers.{number}", layer, hidden, mask, first_only)
        if encoder.pooler is not None:
            first = hidden if layout.first_only else self.first_token(hidden)  # (B, H)
            hidden = self.writer.node("pooled", "Tanh", self.linear(first, encoder.pooler))
        self.linear(hidden, replace(encoder.head, name=OUTPUT))
        names = [IDS] if layout.one_text else [IDS, TYPES]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in names]
        axes: list[str | int] = (
            ["texts", len(encoder.head.bias)] if of_texts else ["texts", "tokens", len(encoder.head.bias)]
        )
        return self.writer.model(inputs, helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, axes))

    def linear(self, source: str, linear: Linear) -> str:
        return self.form.linear(self.writer, source, linear)

    def norm(self, name: str, source: str, norm: Norm) -> str:
        weight, bias = (self.writer.constant(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias"))
        return self.writer.node(name, "LayerNormalization", source, weight, bias, axis=-1, epsilon=norm.epsilon)

    def numbers(self, *values: int) -> str:
        return self.writer.constant("_".join(map(str, ("shape", *values))), np.array(values, dtype=np.int64))

    # Embeddings.

    def embed(self, embeddings: Embeddings) -> str:
        writer, layout = self.writer, self.layout
        table, apart = embeddings.positions[: layout.tokens], [embeddings.task]
        if layout.one_text:
            apart.append(embeddings.types[0])
        if layout.folded:
            table, apart = table + sum(apart), []
        tokens = writer.node("tokens", "Shape", IDS, start=1, end=2)  # (1,)
        zero = self.numbers(0)
        places = writer.node(
            "positions", "Slice", writer.constant("positions.table", table), zero, tokens, zero
        )  # (T, H)
        total = writer.node("embedded.positions", "Add", self.form.words(writer, IDS, embeddings), places)
        for number, row in enumerate(apart):
            total = writer.node(f"embedded.row_{number}", "Add", total, writer.constant(f"row_{number}", row))
        if not layout.one_text:
            types = writer.node("types", "Gather", writer.constant("types.table", embeddings.types), TYPES)
            total = writer.node("embedded.types", "Add", total, types)
        return self.norm("embeddings", total, embeddings.norm)

    def mask(self) -> str:
        """The mask (B, 1, 1, T) that is added to attention scores."""
        writer, encoder = self.writer, self.encoder
        padding = writer.node("padding", "Equal", IDS, writer.constant("pad_id", np.array(encoder.pad_id)))
        hidden = writer.node("padding.float", "Cast", padding, to=TensorProto.FLOAT)
        scored = writer.node("padding.scores", "Mul", hidden, writer.constant("mask_value", encoder.mask))
        return writer.node("mask", "Unsqueeze", scored, self.numbers(1, 2))

    # Layers.

    def layer(self, name: str, layer: Layer, source: str, mask: str | None, first_only: bool) -> str:
        """One layer: (B, T, H) -> (B, T, H); with `first_only` (B, H) of the first token."""
        writer, attention = self.writer, layer.attention
        if self.layout.scaled:
            attention = replace(attention, query=attention.query.scaled(attention.scale), scale=1.0)
        residual = self.first_token(source) if first_only else source
        context = self.attention(name, attention, source, residual, mask, first_only)
        middle = writer.node(f"{name}.attended", "Add", residual, self.linear(context, attention.output))
        middle = self.norm(f"{name}.attention_norm", middle, layer.attention_norm)
        inner = self.gelu(f"{name}.gelu", self.linear(middle, layer.up))
        total = writer.node(f"{name}.sum", "Add", middle, self.linear(inner, layer.down))
        return self.norm(f"{name}.norm", total, layer.norm)

    def attention(
        self, name: str, attention: Attention, source: str, asking: str, mask: str | None, first_only: bool
    ) -> str:
        """Attention of the tokens of `asking` to those of `source`: (B, T, heads x size), or (B, heads x size)."""
        writer, heads, size = self.writer, attention.heads, attention.size
        query, key, value = self.projections(name, attention, source, asking, first_only)
        if first_only:
            query = writer.node(f"{name}.queries", "Reshape", query, self.numbers(0, heads, 1, size))
        else:
            query = self.by_head(f"{name}.queries", query, attention, [0, 2, 1, 3])  # (B, heads, T, size)
        key = self.by_head(f"{name}.keys", key, attention, [0, 2, 3, 1])  # (B, heads, size, T)
        value = self.by_head(f"{name}.values", value, attention, [0, 2, 1, 3])
        if attention.scale != 1.0:
            query = writer.node(f"{name}.scaled", "Mul", query, writer.constant("attention_scale", attention.scale))
        scores = writer.node(f"{name}.scores", "MatMul", query, key)  # (B, heads, T or 1, T)
        if mask is not None:
            scores = writer.node(f"{name}.masked", "Add", scores, mask)
        weights = writer.node(f"{name}.weights", "Softmax", scores, axis=-1)
        context = writer.node(f"{name}.context", "MatMul", weights, value)  # (B, heads, T or 1, size)
        if first_only:
            return writer.node(f"{name}.joined", "Reshape", context, self.numbers(0, heads * size))
        turned = writer.node(f"{name}.turned", "Transpose", context, perm=[0, 2, 1, 3])
        return writer.node(f"{name}.joined", "Reshape", turned, self.numbers(0, 0, heads * size))

    def projections(
        self, name: str, attention: Attention, source: str, asking: str, first_only: bool
    ) -> tuple[str, str, str]:
        """Queries, keys and values, with their heads side by side in the last axis."""
        query, key, value = attention.query, attention.key, attention.value
        if not self.layout.merged:
            return self.linear(asking, query), self.linear(source, key), self.linear(source, value)
        width = attention.heads * attention.size
        if first_only:
            both = self.linear(source, beside(f"{name}.key_value", key, value))
            keys, values = self.writer.split(f"{name}.key_value.split", both, [width, width])
            return self.linear(asking, query), keys, values
        all_three = self.linear(source, beside(f"{name}.query_key_value", query, key, value))
        queries, keys, values = self.writer.split(f"{name}.query_key_value.split", all_three, [width, width, width])
        return queries, keys, values

    def by_head(self, name: str, source: str, attention: Attention, order: list[int]) -> str:
        """(B, T, heads x size) -> (B, T, heads, size), then transposed."""
        shape = self.numbers(0, 0, attention.heads, attention.size)
        split = self.writer.node(f"{name}.split", "Reshape", source, shape)
        return self.writer.node(name, "Transpose", split, perm=order)

    def gelu(self, name: str, source: str) -> str:
        """Exact GELU as five standard operators, which ONNX Runtime fuses."""
        writer = self.writer
        divided = writer.node(f"{name}.divided", "Div", source, writer.constant("root_of_2", float(np.sqrt(2.0))))
        shifted = writer.node(
            f"{name}.shifted", "Add", writer.node(f"{name}.erf", "Erf", divided), writer.constant("one", 1.0)
        )
        product = writer.node(f"{name}.product", "Mul", source, shifted)
        return writer.node(name, "Mul", product, writer.constant("half", 0.5))

    def first_token(self, source: str) -> str:
        """The first token: (B, T, H) -> (B, H)."""
        return self.writer.node(f"{source}.first", "Gather", source, self.writer.constant("first", np.array(0)), axis=1)
