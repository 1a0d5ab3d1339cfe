"""A read-only index over an ONNX graph: who makes a tensor, and what is constant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy.typing as npt
import onnx
from onnx import numpy_helper

Array = npt.NDArray[Any]


class GraphView:
    """Look-ups over `model.graph`, made once; changing the graph makes the view stale."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._constants = {item.name: item for item in model.graph.initializer}

    @cached_property
    def makers(self) -> dict[str, onnx.NodeProto]:
        """The node that makes each tensor."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    def is_constant(self, name: str) -> bool:
        """Whether `name` is an initializer."""
        return name in self._constants

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an initializer."""
        return tuple(self._constants[name].dims)

    def constant(self, name: str) -> Array:
        """Value of an initializer."""
        return numpy_helper.to_array(self._constants[name])


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those that they hold, as the branches of an `If`."""
    for node in graph.node:
        yield node
        for inner in _held(node):
            yield from every_node(inner)


def holds_graphs(graph: onnx.GraphProto) -> bool:
    """Whether any node holds a graph."""
    return any(_held(node) for node in graph.node)


def foreign_domains(graph: onnx.GraphProto) -> list[str]:
    """The domains, in order, of operators that are not standard ones."""
    return sorted({node.domain for node in every_node(graph)} - {"", "ai.onnx"})


def _held(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [inner for item in node.attribute for inner in (*([item.g] if item.HasField("g") else []), *item.graphs)]


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove, in place, initializers that nothing reads."""
    used = {name for node in every_node(model.graph) for name in node.input}
    used |= {value.name for value in model.graph.output}
    kept = [item for item in model.graph.initializer if item.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
