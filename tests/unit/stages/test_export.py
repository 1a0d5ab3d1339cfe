"""Stage `export`: what paddle2onnx made is compared with Paddle."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.graph_writer import OUTPUT
from edgepack.onnx_graph.recognise import IDS, TYPES
from edgepack.stages import export

SCALE, BIAS = np.array([1, 2, 3, 4], np.float32), np.array([0, 0, 1, 0], np.float32)


def normalized(scale: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    """The ids of four tokens, normalized. Their types are not read."""
    inputs = [helper.make_tensor_value_info(IDS, TensorProto.INT64, ["N", 4])]
    nodes = [
        helper.make_node("Cast", [IDS], ["x"], to=TensorProto.FLOAT),
        helper.make_node("LayerNormalization", ["x", "scale", "bias"], [OUTPUT]),
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in (("scale", scale), ("bias", bias))]
    outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_normalization_without_its_scale_and_bias_is_refused() -> None:
    """As paddle2onnx converts some programs of Paddle 3 (Paddle2ONNX 1644)."""
    ids = np.array([[5, 3, 9, 1]], np.int64)
    logits = SCALE * ((ids - ids.mean()) / ids.std()).astype(np.float32) + BIAS
    saved = [({IDS: ids, TYPES: np.zeros_like(ids)}, logits)]
    export.require_same(normalized(SCALE, BIAS), saved)
    for scale, bias in ((np.ones(4, np.float32), BIAS), (SCALE, np.zeros(4, np.float32))):
        with pytest.raises(StageFailedError, match="Paddle static graph and paddle2onnx's disagree"):
            export.require_same(normalized(scale, bias), saved)
