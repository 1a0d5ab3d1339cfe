"""A read-only index over an ONNX graph: who makes a tensor, and what is constant."""

from __future__ import annotations

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


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove, in place, initializers that no node reads."""
    used = {name for node in model.graph.node for name in node.input}
    used |= {value.name for value in model.graph.output}
    kept = [item for item in model.graph.initializer if item.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
