"""Graphs that were made to harm who opens them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(*nodes: onnx.NodeProto, **graph_fields: object) -> onnx.ModelProto:
    """A graph `x` -> `y` of shape [N, 4] with these nodes."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "given", [x], [y], **graph_fields)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def endless(made: onnx.ModelProto | None = None, *, in_run: float | None = None) -> onnx.ModelProto:
    """A graph whose output goes through a loop of 2**62 rounds; the identity by default.

    Args:
        in_run: the share of runs in which it loops; None: each. With 1 / 5000 the first is the 1,019th of a session.
    """
    made = made or model(helper.make_node("Identity", ["x"], ["y"]))
    graph, output = made.graph, made.graph.output[0].name
    for node in graph.node:
        node.output[:] = ["before" if name == output else name for name in node.output]
    state = [onnx.ValueInfoProto.FromString(graph.output[0].SerializeToString()) for _ in range(2)]
    state[0].name, state[1].name = "state", "next"
    going = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("going", "on")]
    number = helper.make_tensor_value_info("number", TensorProto.INT64, [])
    nodes = [helper.make_node("Identity", ["going"], ["on"]), helper.make_node("Neg", ["state"], ["next"])]
    body = helper.make_graph(nodes, "body", [number, going[0], state[0]], [going[1], state[1]])
    if in_run is not None:
        graph.node.append(helper.make_node("RandomUniform", [], ["drawn"], shape=[1], seed=33.0))
        graph.node.append(helper.make_node("Less", ["drawn", "share"], ["hit"]))
        graph.node.append(helper.make_node("Where", ["hit", "many", "once"], ["chosen"]))
        graph.node.append(helper.make_node("Squeeze", ["chosen"], ["rounds"]))
        graph.initializer.append(numpy_helper.from_array(np.array([in_run], np.float32), "share"))
        graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "once"))
    name, shape = ("rounds", ()) if in_run is None else ("many", (1,))
    graph.node.append(helper.make_node("Loop", ["rounds", "true", "before"], [output], body=body))
    graph.initializer.append(numpy_helper.from_array(np.full(shape, 2**62, np.int64), name))
    graph.initializer.append(numpy_helper.from_array(np.array(True), "true"))
    onnx.checker.check_model(made)
    return made


def vast(gibibytes: int) -> onnx.ModelProto:
    """A tensor of that many GiB, of a graph of some hundred bytes."""
    size = numpy_helper.from_array(np.array([gibibytes, 2**28], np.int64), "size")
    nodes = [
        helper.make_node("RandomUniform", [], ["one"], shape=[1, 1]),  # no constant: it is not folded
        helper.make_node("Expand", ["one", "size"], ["all"]),
        helper.make_node("ReduceMax", ["all"], ["largest"], keepdims=0),
        helper.make_node("Add", ["x", "largest"], ["y"]),
    ]
    return model(*nodes, initializer=[size])


def external(name: str) -> onnx.ModelProto:
    """A model that reads its weight from the file `name`, in the body of a branch."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=name)
    branch = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["out"])],
        "branch",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [4])],
        [weight],
    )
    chosen = helper.make_node("If", ["true"], ["w1"], then_branch=branch, else_branch=branch)
    true = numpy_helper.from_array(np.array(True), "true")
    return model(chosen, helper.make_node("Add", ["x", "w1"], ["y"]), initializer=[true])


def varint(number: int) -> bytes:
    """A number as protobuf encodes it."""
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def write_pdmodel(path: Path, *blocks: list[str]) -> Path:
    """A program of Paddle 2 with these operators in its blocks."""
    encoded = b"".join(
        field(1, b"\x08\x00\x10\x00" + b"".join(field(4, field(3, name.encode())) for name in names))
        for names in blocks
    )
    path.write_bytes(encoded)
    return path
