"""The exported graphs that lie in golden/graphs, encoders of any shape, and how to run any graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.onnx_graph.encoder import Attention, Embeddings, Encoder, Layer, Linear, Norm
from edgepack.onnx_graph.int8_ranges import with_ranges
from edgepack.onnx_graph.recognise import recognise

FOLDER: Final = Path(__file__).parents[1] / "golden" / "graphs"
PADDLES: Final = ("26", "33")
NAMES: Final = tuple(f"{task}-{paddle}" for task in ("texts", "tokens") for paddle in PADDLES)
VOCABULARY, PAD = 16, 0
_PARTS: Final = ("query", "key", "value", "output")
Array = npt.NDArray[Any]


def exported(name: str) -> onnx.ModelProto:
    return onnx.load(str(FOLDER / f"{name}.onnx"))


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, ids: Array, types: Array | None = None) -> Array:
    opened = session(model)
    given = {"input_ids": ids, "token_type_ids": np.zeros_like(ids) if types is None else types}
    return np.asarray(opened.run(None, {item.name: given[item.name] for item in opened.get_inputs()})[0])


def some_ids(texts: int = 5, tokens: int = 9, seed: int = 0) -> Array:
    """Random tokens, none of them padding."""
    return np.random.default_rng(seed).integers(1, VOCABULARY, (texts, tokens))


def scales_of(encoder: Encoder, low: float = -6.0, high: float = 6.0) -> list[LinearScales]:
    """Ranges as an observer would tell them, wide enough for what the golden graphs compute."""
    return [
        LinearScales(
            linear.name, weight_digest(linear.weight), (low, high), tuple(np.abs(linear.weight).max(axis=0).tolist())
        )
        for linear in encoder.linears()
    ]


def ranged(name: str = "texts-33", *, embeddings: bool = True) -> Encoder:
    """An exported encoder with those ranges."""
    encoder = recognise(exported(name))
    return with_ranges(encoder, scales_of(encoder), embeddings=embeddings)


def either(condition: str, inputs: list[str], output: str) -> onnx.NodeProto:
    """A node that adds two tensors of the graph around it, or subtracts them."""
    branches = [
        helper.make_graph(
            [helper.make_node(operator, inputs, ["y"])], operator, [], [helper.make_empty_tensor_value_info("y")]
        )
        for operator in ("Add", "Sub")
    ]
    return helper.make_node("If", [condition], [output], then_branch=branches[0], else_branch=branches[1])


def random_encoder(
    seed: int = 0, *, layers: int = 2, heads: int = 2, size: int = 8, pooler: bool = True, mask: float = -1e4
) -> Encoder:
    """One with random weights, for up to 32 tokens; its logits are some units apart."""
    random = np.random.default_rng(seed)
    hidden = heads * size

    def normal(*shape: int, spread: float = 1.0) -> npt.NDArray[np.float32]:
        return (spread * random.normal(0, 1, shape)).astype(np.float32)

    def linear(name: str, width: int, out: int) -> Linear:
        return Linear(name, normal(width, out, spread=width**-0.5), normal(out, spread=0.1))

    def norm() -> Norm:
        return Norm(1 + normal(hidden, spread=0.1), normal(hidden, spread=0.1), 1e-12)

    def layer(name: str) -> Layer:
        query, key, value, output = (linear(f"{name}.{part}", hidden, hidden) for part in _PARTS)
        attention = Attention(query, key, value, output, heads, size**-0.5)
        up, down = linear(f"{name}.up", hidden, 4 * hidden), linear(f"{name}.down", 4 * hidden, hidden)
        return Layer(attention, norm(), up, down, norm())

    tables = (normal(rows, hidden, spread=0.1) for rows in (VOCABULARY, 32, 4))
    return Encoder(
        Embeddings(*tables, normal(hidden, spread=0.1), norm()),
        tuple(layer(f"layers.{number}") for number in range(layers)),
        linear("pooler", hidden, hidden) if pooler else None,
        linear("head", hidden, 3),
        PAD,
        mask,
    )
