"""Reader of an ERNIE encoder from a graph of any version of paddle2onnx.

It starts at the output and follows the node of each tensor: head, pooler, layers from the top, embeddings. Arithmetic
on weights is matched by its shape, with operands in either order. Arithmetic on indices differs between versions of
paddle2onnx; it is run on a few inputs instead, and must give positions, zeros, or the padding mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from edgepack.onnx_graph.encoder import Attention, Embeddings, Encoder, Float, Layer, Linear, Norm
from edgepack.onnx_graph.utils import Array, GraphView, ancestors, evaluate, foreign_domains, holds_graphs
from edgepack.util.text import counted

_ROOT_OF_2: Final = float(np.sqrt(2.0))
_SHOWN: Final = 300  # characters of a cause


class Unrecognised(Exception):
    """The graph is not a known form of ERNIE. The text names what was found and what was expected."""


@contextmanager
def reading() -> Iterator[None]:
    """Raise `Unrecognised` for any error of the block, which reads a graph.

    An unknown graph may fail in any way (a shape, a missing operand, an unknown operator), and ships unchanged. Code
    that writes a graph stays outside of the block.
    """
    try:
        yield
    except (Unrecognised, MemoryError):
        raise
    except Exception as error:
        cause = (str(error).splitlines() or [""])[0]
        raise Unrecognised(f"it cannot be read: {type(error).__name__}: {cause[:_SHOWN]}") from error


class Patterns:
    """Matchers of the nodes of one graph. Every method raises `Unrecognised` if the nodes do not match."""

    def __init__(self, view: GraphView) -> None:
        self._view = view

    def linear(self, output: str, name: str) -> tuple[str, Linear]:
        """The input of a product, and the product."""
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
        """The input of a LayerNorm over the last of three axes, and the LayerNorm."""
        node = self.node(output, "LayerNormalization")
        if self.attribute(node, "axis", -1) not in (-1, 2) or len(node.input) != 3:
            raise self.unlike(output, "a LayerNorm over the last axis, with a bias")
        weight, bias = (self.weights(name, rank=1) for name in node.input[1:])
        return node.input[0], Norm(weight, bias, float(self.attribute(node, "epsilon", 1e-5)))

    def gelu(self, output: str) -> str:
        """The input x of GELU, x * (erf(x / sqrt(2)) + 1) * 0.5, with factors in any order."""
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
        """The factors of a tensor, in any nesting of products."""
        if self.made_by(output, "Mul"):
            for part in self.node(output, "Mul").input:
                yield from self.factors(part)
        else:
            yield output

    def factor(self, output: str) -> tuple[str, float]:
        """A tensor without its constant factor, and the factor."""
        for operator in ("Mul", "Div"):
            if self.made_by(output, operator):
                left, right = self.node(output, operator).input
                if self.is_number(right):
                    return left, self.number(right) if operator == "Mul" else 1 / self.number(right)
                if operator == "Mul" and self.is_number(left):
                    return right, self.number(left)
        return output, 1.0

    def first_token(self, output: str) -> str:
        """The input of a selection of the first token: (B, T, H) -> (B, H)."""
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
        """The input of a reshape that keeps texts and tokens, and its shape."""
        node = self.node(output, "Reshape")
        shape = [int(size) for size in self.constant(node.input[1], rank=1)]
        if len(shape) != rank or shape[:2] != [0, 0] or self.attribute(node, "allowzero", 0):
            raise self.unlike(output, f"a shape of {rank} axes that keeps the first two")
        return str(node.input[0]), shape

    def transpose(self, output: str, order: Sequence[int]) -> str:
        """The input of a transposition to the axes `order`."""
        node = self.node(output, "Transpose")
        if self.attribute(node, "perm", None) != list(order):
            raise self.unlike(output, f"axes in the order {list(order)}")
        return str(node.input[0])

    def node(self, tensor: str, operator: str) -> onnx.NodeProto:
        """The node that computes a tensor, which must have the standard `operator`."""
        if not self.made_by(tensor, operator):
            raise self.unlike(tensor, f"made by {operator}")
        return self._view.makers[tensor]

    def made_by(self, tensor: str, operator: str) -> bool:
        """Whether a node with the standard `operator` computes a tensor."""
        maker = self._view.makers.get(tensor)
        return maker is not None and maker.op_type == operator and maker.domain in ("", "ai.onnx")

    def other(self, node: onnx.NodeProto, operand: str) -> str:
        """The other of two operands."""
        return str(node.input[1] if node.input[0] == operand else node.input[0])

    def weights(self, name: str, rank: int) -> Float:
        """A float32 constant with this number of axes."""
        value = self.constant(name, rank)
        if value.dtype != np.float32:
            raise self.unlike(name, "a constant of float32")
        return np.asarray(value, dtype=np.float32)

    def constant(self, name: str, rank: int) -> Array:
        """A constant with this number of axes."""
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
        """Check that two nodes read the same tensor."""
        if found != wanted:
            raise self.unlike(found, f"the tensor {wanted}")

    def unlike(self, tensor: str, wanted: str) -> Unrecognised:
        """The error for a `tensor` that is not `wanted`."""
        maker = self._view.makers.get(tensor)
        found = f"made by {maker.op_type}" if maker is not None else "a constant or an input"
        return Unrecognised(f"the tensor {tensor}, {found}, is not {wanted}")


IDS, TYPES = "input_ids", "token_type_ids"
_PROBES: Final = ((1, 5), (3, 7))  # texts and tokens
_HEADS_FIRST, _KEYS = [0, 2, 1, 3], [0, 2, 3, 1]  # (B, T, heads, size) -> (B, heads, T, size), (B, heads, size, T)


def recognise(model: onnx.ModelProto) -> Encoder:
    """The encoder and classifier of `model`, whose constants are folded.

    Raises:
        Unrecognised: the graph is not a known form of ERNIE.
    """
    with reading():
        return _Reading(model).encoder()


class _Reading:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.view = GraphView(model)
        self.see = Patterns(self.view)
        self.output = model.graph.output[0].name

    def encoder(self) -> Encoder:
        if {value.name for value in self.view.model.graph.input} != {IDS, TYPES}:
            raise Unrecognised(f"its inputs are not {IDS} and {TYPES}")
        foreign = foreign_domains(self.view.model.graph)
        if foreign:
            raise Unrecognised(f"it has operators of other domains: {', '.join(foreign)}")
        if holds_graphs(self.view.model.graph):
            raise Unrecognised("it has operators that hold graphs")
        last, head = self.see.linear(self.output, "head")
        pooler = None
        if self.see.made_by(last, "Tanh"):
            first, pooler = self.see.linear(self.see.node(last, "Tanh").input[0], "pooler")
            last = self.see.first_token(first)
        layers, masks, lowest = self.layers(last)
        embeddings = self.embeddings(lowest)
        pad_id, mask = self.mask(masks, len(embeddings.words))
        return Encoder(embeddings, layers, pooler, head, pad_id, mask)

    # The layers.

    def layers(self, top: str) -> tuple[tuple[Layer, ...], set[str], str]:
        """All layers, their attention masks, and the input of the lowest layer."""
        found: list[tuple[Layer, str]] = []
        tensor, depth = top, self.depth(top)
        for number in reversed(range(depth)):
            tensor, layer, mask = self.layer(tensor, f"layers.{number}")
            found.append((layer, mask))
        return tuple(layer for layer, _ in reversed(found)), {mask for _, mask in found}, tensor

    def depth(self, top: str) -> int:
        """The number of layers below `top`. Each ends in the normalised sum of a residual and a product."""
        count, tensor = 0, top
        most = len(self.view.makers)  # or the graph runs in a circle
        while count <= most and (residual := self.residual(self.see.norm(tensor)[0])) is not None:
            below = self.residual(self.see.norm(residual)[0])
            if below is None:
                raise self.see.unlike(residual, "the sum of half a layer")
            count, tensor = count + 1, below
        return count

    def residual(self, total: str) -> str | None:
        """The operand of a sum that is the output of a LayerNorm; None if there is none."""
        if not self.see.made_by(total, "Add"):
            return None
        return next(
            (name for name in self.see.node(total, "Add").input if self.see.made_by(name, "LayerNormalization")), None
        )

    def layer(self, output: str, name: str) -> tuple[str, Layer, str]:
        """The input of a layer, the layer, and its mask."""
        total, norm = self.see.norm(output)
        middle, branch = self.halves(total)
        inner, down = self.see.linear(branch, f"{name}.down")
        below, up = self.see.linear(self.see.gelu(inner), f"{name}.up")
        self.see.same(below, middle)
        total, attention_norm = self.see.norm(middle)
        source, branch = self.halves(total)
        attention, mask = self.attention(branch, source, name)
        return source, Layer(attention, attention_norm, up, down, norm), mask

    def halves(self, total: str) -> tuple[str, str]:
        """The residual and the other operand of a sum."""
        residual = self.residual(total)
        if residual is None:
            raise self.see.unlike(total, "the sum of a LayerNorm and a product")
        return residual, self.see.other(self.see.node(total, "Add"), residual)

    def attention(self, output: str, source: str, name: str) -> tuple[Attention, str]:
        context, out = self.see.linear(output, f"{name}.output")
        context, _ = self.see.reshape(context, rank=3)
        weights, values = self.see.node(self.see.transpose(context, _HEADS_FIRST), "MatMul").input
        softmax = self.see.node(weights, "Softmax")
        if self.see.attribute(softmax, "axis", -1) not in (-1, 3):
            raise self.see.unlike(weights, "a softmax over the last axis")
        total = self.see.node(softmax.input[0], "Add")
        scores = next((each for each in total.input if self.is_scores(each)), None)
        if scores is None:
            raise self.see.unlike(total.output[0], "the sum of queries times keys and a mask")
        mask = self.see.other(total, scores)
        scores, scale = self.see.factor(scores)
        queries, keys = self.see.node(scores, "MatMul").input
        parts, heads = {}, 0
        for role, tensor, order in (
            ("query", queries, _HEADS_FIRST),
            ("key", keys, _KEYS),
            ("value", values, _HEADS_FIRST),
        ):
            tensor, factor = self.see.factor(tensor)
            split, shape = self.see.reshape(self.see.transpose(tensor, order), rank=4)
            below, parts[role] = self.see.linear(split, f"{name}.{role}")
            self.see.same(below, source)
            scale *= factor if role != "value" else 1.0
            if role == "value" and factor != 1.0:
                raise self.see.unlike(values, "values as they are")
            heads = shape[2]
            if shape[2] * shape[3] != parts[role].weight.shape[1]:
                raise self.see.unlike(split, f"{counted(shape[2], 'head')} of {shape[3]}")
        return Attention(parts["query"], parts["key"], parts["value"], out, heads, scale), mask

    def is_scores(self, tensor: str) -> bool:
        return self.see.made_by(self.see.factor(tensor)[0], "MatMul")

    # The embeddings and the mask, whose indices are computed in the graph.

    def embeddings(self, output: str) -> Embeddings:
        total, norm = self.see.norm(output)
        tables = {"task": np.zeros((1, len(norm.weight)), np.float32)}
        for leaf in self.summands(total):
            gather = self.see.node(leaf, "Gather")
            table = self.see.weights(gather.input[0], rank=2)
            role = self.role(gather.input[1], table)
            if role == "task":
                table = tables["task"] + table[self.index_of_task(gather.input[1])]
            elif role in tables:
                raise self.see.unlike(leaf, f"one table of {role}")
            tables[role] = table
        for role, table in tables.items():
            if not len(table) or table.shape[1] != len(norm.weight):
                raise Unrecognised(f"its table of {role} has the shape {table.shape}")
        missing = {"words", "positions", "types"} - tables.keys()
        if missing:
            raise Unrecognised(f"its embeddings have no {' and no '.join(sorted(missing))}")
        return Embeddings(tables["words"], tables["positions"], tables["types"], tables["task"][0], norm)

    def summands(self, total: str) -> Iterator[str]:
        if self.see.made_by(total, "Add"):
            for part in self.see.node(total, "Add").input:
                yield from self.summands(part)
        else:
            yield total

    def role(self, index: str, table: Float) -> str:
        """The embedding that is gathered at `index`."""
        if index == IDS:
            return "words"
        if index == TYPES:
            return "types"
        for feeds in _probes(min(len(table), 4)):
            (found,) = evaluate(self.view, [index], feeds)
            texts, tokens = feeds[IDS].shape
            if np.array_equal(np.broadcast_to(found, (texts, tokens)), np.tile(np.arange(tokens), (texts, 1))):
                role = "positions"
            elif found.min() == found.max() and 0 <= found.min() < len(table):
                role = "task"
            else:
                raise self.see.unlike(index, "positions, or one and the same row for all tokens")
        return role

    def index_of_task(self, index: str) -> int:
        return int(evaluate(self.view, [index], next(_probes(4)))[0].flat[0])

    def mask(self, masks: set[str], vocabulary: int) -> tuple[int, float]:
        """The id of the padding, and the number that is added to its attention scores."""
        if len(masks) != 1:
            raise Unrecognised("its layers do not share one mask")
        (mask,) = masks
        compared = [
            node.input for node in ancestors(self.view, [mask]) if node.op_type == "Equal" and IDS in node.input
        ]
        pads = [name for pair in compared for name in pair if self.view.is_constant(name)]
        if len(pads) != 1:
            raise self.see.unlike(mask, f"a mask of the {IDS} that equal one id")
        pad_id, value = int(self.see.number(pads[0])), 0.0
        if not 0 <= pad_id < vocabulary:
            raise Unrecognised(f"it takes {pad_id} for padding, and has {counted(vocabulary, 'word')}")
        for feeds in _probes(vocabulary, pad_id):
            (found,) = evaluate(self.view, [mask], feeds)
            hidden = feeds[IDS] == pad_id  # (B, T)
            value = float(found.min())
            if found.shape != (len(hidden), 1, 1, hidden.shape[1]) or not np.array_equal(
                found[:, 0, 0], hidden * value
            ):
                raise self.see.unlike(mask, "0 for texts and one number for padding")
        return pad_id, value


def _probes(vocabulary: int, pad_id: int | None = None) -> Iterator[dict[str, Array]]:
    """Inputs that distinguish values that depend on ids, on shapes, or on neither. `pad_id` ends every second text."""
    random = np.random.default_rng(0)
    for texts, tokens in _PROBES:
        ids = random.integers(0, vocabulary, (texts, tokens))
        if pad_id is not None:
            ids[::2, -2:] = pad_id
        yield {IDS: ids, TYPES: random.integers(0, 2, (texts, tokens))}
