"""What some tensors of a graph come out as: the part that makes them, run by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from edgepack.graph.view import Array, GraphView


def ancestors(view: GraphView, tensors: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that `tensors` hang on, in graph order."""
    needed, found = set(tensors), []
    for node in reversed(view.model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            found.append(node)
    return found[::-1]


def evaluate(view: GraphView, tensors: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """The values of `tensors` for the inputs that `feeds` has; no more of the graph is run than they need.

    What no node makes is a constant, or an input itself.
    """
    made = [name for name in tensors if name in view.makers]
    values = _run(view, made, feeds) if made else {}
    for name in tensors:
        if name not in values:
            values[name] = view.constant(name) if view.is_constant(name) else feeds[name]
    return [np.asarray(values[name]) for name in tensors]


def _run(view: GraphView, tensors: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
    nodes = ancestors(view, tensors)
    read = {name for node in nodes for name in node.input}
    model = view.model
    graph = helper.make_graph(
        nodes,
        "part",
        [value for value in model.graph.input if value.name in read],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in tensors],
        [item for item in model.graph.initializer if item.name in read],
    )
    for output in graph.output:
        output.ClearField("type")  # ONNX Runtime finds it
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = session.run(list(tensors), {name: value for name, value in feeds.items() if name in read})
    return dict(zip(tensors, values, strict=True))
