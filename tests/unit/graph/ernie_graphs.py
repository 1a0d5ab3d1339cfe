"""The exported graphs that lie in golden/graphs, and how to run any graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from edgepack.graph.encoder import Encoder
from edgepack.quantization import LinearScales, weight_digest

FOLDER: Final = Path(__file__).parents[1] / "golden" / "graphs"
LANES: Final = ("26", "33")
NAMES: Final = tuple(f"{task}-{lane}" for task in ("texts", "tokens") for lane in LANES)
VOCABULARY, PAD = 16, 0
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
