"""Write an ONNX graph node by node. Every node has the name of the tensor that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgepack.graph.view import Array

MICROSOFT: Final = "com.microsoft"  # the domain of ONNX Runtime's own operators
OPSET: Final = 17
IR_VERSION: Final = 8  # of ONNX 1.12, which came with opset 17


class Writer:
    """Constants and nodes in the order in which they are written; a name is given once."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: Array | float) -> str:
        """A constant of the graph, kept once however often it is asked for; a number is one of float32."""
        if name not in self._constants:
            array = np.asarray(value, dtype=np.float32) if isinstance(value, float) else np.asarray(value, order="C")
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, name: str, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node that makes one tensor; its name."""
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def several(self, name: str, operator: str, *inputs: str, outputs: Sequence[str], **attributes: Any) -> None:
        """A node that makes several tensors, with names of their own."""
        self._nodes.append(helper.make_node(operator, list(inputs), list(outputs), name=name, **attributes))

    def split(self, name: str, tensor: str, sizes: list[int]) -> list[str]:
        """The parts of a tensor along its last axis."""
        parts = [f"{name}.{number}" for number in range(len(sizes))]
        lengths = self.constant(f"{name}.sizes", np.array(sizes, dtype=np.int64))
        self.several(name, "Split", tensor, lengths, outputs=parts, axis=-1)
        return parts

    def model(self, inputs: list[onnx.ValueInfoProto], output: onnx.ValueInfoProto) -> onnx.ModelProto:
        """The graph, checked. It asks for ONNX Runtime's operators if it has some."""
        graph = helper.make_graph(self._nodes, "edgepack", inputs, [output], list(self._constants.values()))
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgepack")
        onnx.checker.check_model(model, full_check=not domains)
        return model
