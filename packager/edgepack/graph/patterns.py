"""Patterns of a few nodes that an exported graph is made of: a product with its bias, a LayerNorm, GELU.

Each is matched from the tensor that it makes, with the operands of sums and products in either order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from edgepack.graph.encoder import Float, Linear, Norm
from edgepack.graph.view import Array, GraphView
from edgepack.wording import counted

_ROOT_OF_2: Final = float(np.sqrt(2.0))
_SHOWN: Final = 300  # characters of a cause


class Unrecognised(Exception):
    """The graph is not ERNIE as it is known here; the text says what was found where something else was due."""


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads a graph: whatever goes wrong there is `Unrecognised`, with its cause.

    Graphs come from elsewhere, and the ways in which one may be unlike what is known here have no end: a shape that
    does not fit, an operand that is missing, an operator that ONNX Runtime does not have. None of them is a reason not
    to ship the graph as it is. What writes a graph stands outside: an error there is one of this program.
    """
    try:
        yield
    except (Unrecognised, MemoryError):
        raise
    except Exception as error:
        cause = (str(error).splitlines() or [""])[0]
        raise Unrecognised(f"it cannot be read: {type(error).__name__}: {cause[:_SHOWN]}") from error


class Patterns:
    """What makes the tensors of one graph. Every method raises `Unrecognised` where that is not what it asks for."""

    def __init__(self, view: GraphView) -> None:
        self._view = view

    def linear(self, output: str, name: str) -> tuple[str, Linear]:
        """What a product reads, and the product."""
        add = self.node(output, "Add")
        product = next((each for each in add.input if self.made_by(each, "MatMul")), None)
        if product is None:
            raise self.unlike(output, "a product and its bias")
        bias = self.weights(self.other(add, product), rank=1)
        source, weight = self.node(product, "MatMul").input
        matrix = self.weights(weight, rank=2)
        if matrix.shape[1] != len(bias):
            raise self.unlike(output, f"a bias of {matrix.shape[1]}")
        return source, Linear(name, matrix, bias)

    def norm(self, output: str) -> tuple[str, Norm]:
        """What a LayerNorm over the last of three axes reads, and the LayerNorm."""
        node = self.node(output, "LayerNormalization")
        if self.attribute(node, "axis", -1) not in (-1, 2) or len(node.input) != 3:
            raise self.unlike(output, "a LayerNorm over the last axis, with a bias")
        weight, bias = (self.weights(name, rank=1) for name in node.input[1:])
        return node.input[0], Norm(weight, bias, float(self.attribute(node, "epsilon", 1e-5)))

    def gelu(self, output: str) -> str:
        """What GELU reads: x * (erf(x / root of 2) + 1) * 0.5, in any order of the factors."""
        factors = list(self.factors(output))
        numbers = [self.number(name) for name in factors if self.is_number(name)]
        others = [name for name in factors if not self.is_number(name)]
        for total in (name for name in others if self.made_by(name, "Add")):
            add = self.node(total, "Add")
            erf = next((name for name in add.input if self.made_by(name, "Erf")), None)
            if erf is None or len(others) != 2 or not np.isclose(np.prod(numbers), 0.5):
                continue
            source = next(name for name in others if name != total)
            inside, factor = self.factor(self.node(erf, "Erf").input[0])
            if inside == source and np.isclose(factor, 1 / _ROOT_OF_2) and self.number(self.other(add, erf)) == 1.0:
                return source
        raise self.unlike(output, "the exact GELU")

    def factors(self, output: str) -> Iterator[str]:
        """What is multiplied into a tensor, however it is bracketed."""
        if self.made_by(output, "Mul"):
            for part in self.node(output, "Mul").input:
                yield from self.factors(part)
        else:
            yield output

    def factor(self, output: str) -> tuple[str, float]:
        """A tensor without the number that it was multiplied with or divided by, and that number as a factor."""
        for operator in ("Mul", "Div"):
            if self.made_by(output, operator):
                left, right = self.node(output, operator).input
                if self.is_number(right):
                    return left, self.number(right) if operator == "Mul" else 1 / self.number(right)
                if operator == "Mul" and self.is_number(left):
                    return right, self.number(left)
        return output, 1.0

    def first_token(self, output: str) -> str:
        """What the first token is taken from: (B, T, H) -> (B, H)."""
        if self.made_by(output, "Gather"):
            node = self.node(output, "Gather")
            if self.attribute(node, "axis", 0) != 1 or self.number(node.input[1]) != 0:
                raise self.unlike(output, "the first token")
            return str(node.input[0])
        squeeze = self.node(output, "Squeeze")
        cut = self.node(squeeze.input[0], "Slice")
        numbers = [self.constant(name, rank=1).tolist() for name in (squeeze.input[1], *cut.input[1:])]
        if numbers[:4] != [[1], [0], [1], [1]] or numbers[4:] not in ([], [[1]]):
            raise self.unlike(output, "the first token")
        return str(cut.input[0])

    def reshape(self, output: str, rank: int) -> tuple[str, list[int]]:
        """What is reshaped, and the shape: texts and tokens stay."""
        node = self.node(output, "Reshape")
        shape = [int(size) for size in self.constant(node.input[1], rank=1)]
        if len(shape) != rank or shape[:2] != [0, 0] or self.attribute(node, "allowzero", 0):
            raise self.unlike(output, f"a shape of {rank} axes that keeps the first two")
        return str(node.input[0]), shape

    def transpose(self, output: str, order: Sequence[int]) -> str:
        """What is transposed, its axes put in `order`."""
        node = self.node(output, "Transpose")
        if self.attribute(node, "perm", None) != list(order):
            raise self.unlike(output, f"axes in the order {list(order)}")
        return str(node.input[0])

    def node(self, tensor: str, operator: str) -> onnx.NodeProto:
        """The node of the standard `operator` that makes a tensor."""
        if not self.made_by(tensor, operator):
            raise self.unlike(tensor, f"made by {operator}")
        return self._view.makers[tensor]

    def made_by(self, tensor: str, operator: str) -> bool:
        """Whether such a node makes it."""
        maker = self._view.makers.get(tensor)
        return maker is not None and maker.op_type == operator and maker.domain in ("", "ai.onnx")

    def other(self, node: onnx.NodeProto, operand: str) -> str:
        """Of two operands, the one that is not `operand`."""
        return str(node.input[1] if node.input[0] == operand else node.input[0])

    def weights(self, name: str, rank: int) -> Float:
        """A constant of float32 with so many axes."""
        value = self.constant(name, rank)
        if value.dtype != np.float32:
            raise self.unlike(name, "a constant of float32")
        return np.asarray(value, dtype=np.float32)

    def constant(self, name: str, rank: int) -> Array:
        """A constant of so many axes."""
        if not self._view.is_constant(name) or len(self._view.shape(name)) != rank:
            raise self.unlike(name, f"a constant of {counted(rank, 'axis', 'axes')}")
        return self._view.constant(name)

    def is_number(self, name: str) -> bool:
        """Whether it is a constant of one element."""
        return self._view.is_constant(name) and int(np.prod(self._view.shape(name))) == 1

    def number(self, name: str) -> float:
        """The one element of a constant."""
        if not self.is_number(name):
            raise self.unlike(name, "a number")
        return float(np.asarray(self._view.constant(name)).reshape(-1)[0])

    def attribute(self, node: onnx.NodeProto, name: str, default: Any) -> Any:
        """The value of a node's attribute, or `default`."""
        return next((helper.get_attribute_value(item) for item in node.attribute if item.name == name), default)

    def same(self, found: str, wanted: str) -> None:
        """Two places of the graph have to read the same tensor."""
        if found != wanted:
            raise self.unlike(found, f"the tensor {wanted}")

    def unlike(self, tensor: str, wanted: str) -> Unrecognised:
        """The error that says what `tensor` is, where `wanted` was due."""
        maker = self._view.makers.get(tensor)
        found = f"made by {maker.op_type}" if maker is not None else "a constant or an input"
        return Unrecognised(f"the tensor {tensor}, {found}, is not {wanted}")
