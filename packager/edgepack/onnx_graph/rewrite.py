"""Rewrite an exported graph for speed, and check that it gives the same logits."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx

from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.graph_writer import PLAIN, Layout, compose
from edgepack.onnx_graph.recognise import IDS, TYPES, Unrecognised, reading, recognise
from edgepack.onnx_graph.utils import Array, GraphView, evaluate

TOLERANCE: Final = 1e-5  # of a logit, or of the largest one where that is above 1: float32 in another order
_TEXTS, _TOKENS = 4, 24


def rewrite(model: onnx.ModelProto, layout: Layout) -> tuple[Encoder, onnx.ModelProto]:
    """The encoder of `model`, and its graph in `layout`, both compared with `model` on random tokens.

    Raises:
        Unrecognised: `model` is not a known form of ERNIE, or the encoder gives other logits.
    """
    encoder = recognise(model)
    layouts = (PLAIN, layout)
    with reading():
        asked = [_inputs(encoder, one) for one in layouts]
        answered = [_logits(model, inputs) for inputs in asked]
    plain, rewritten = (compose(encoder, one) for one in layouts)
    for graph, inputs, expected in zip((plain, rewritten), asked, answered, strict=True):
        found = _logits(graph, inputs)
        if found.shape != expected.shape:
            raise Unrecognised(f"it was read as an ERNIE whose logits have the shape {found.shape}, not its own")
        apart = float(np.abs(found - expected).max()) / max(1.0, float(np.abs(expected).max()))
        if not apart <= TOLERANCE:  # a NaN is not
            raise Unrecognised(f"it was read as an ERNIE whose logits are {apart:.1e} from its own")
    return encoder, rewritten


def _inputs(encoder: Encoder, layout: Layout) -> dict[str, Array]:
    """Random tokens of every id. With a mask, the second half of every second text is padding."""
    random = np.random.default_rng(0)
    embeddings = encoder.embeddings
    shape = (_TEXTS, min(_TOKENS, len(embeddings.positions[: layout.tokens])))
    others = np.delete(np.arange(len(embeddings.words)), encoder.pad_id)
    ids = random.choice(others, shape)
    if not layout.unpadded:
        ids[::2, shape[1] // 2 :] = encoder.pad_id
    types = random.integers(0, 1 if layout.one_text else len(embeddings.types), shape)
    return {IDS: ids, TYPES: types}


def _logits(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    return evaluate(GraphView(model), [model.graph.output[0].name], inputs)[0]
