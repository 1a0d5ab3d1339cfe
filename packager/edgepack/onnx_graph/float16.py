"""Conversion of a graph to float16, for GPUs and ARM64 processors with half-precision arithmetic.

Float16 has 11 significant bits and a maximum of 65,504. Three parts stay in float32:

- the softmax and the mask before it. A mask may be as low as -1e9, and the sum of exponentials over all tokens needs
  more than 11 bits. ONNX Runtime on x86 has no float16 softmax and would split it into five nodes.
- the head, which is small. With 11 bits, two nearly equal logits would become equal.
- the arithmetic inside LayerNormalization (`stash_type`): its epsilon of 1e-12 would become 0, and squares may
  overflow. Its input and output are float16.

GELU in float32 would bring logits of ERNIE nano 6 % nearer, norms and sums twice as near. The error changes no answer,
and a GPU would read and write twice the bytes between products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from edgepack.errors import StageFailedError

LARGEST: Final = float(np.finfo(np.float16).max)  # 65,504
_NAMES: Final[Mapping[int, str]] = {TensorProto.FLOAT16: "float16", TensorProto.FLOAT: "float32"}


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model`, a float32 graph of `compose`, in float16. Inputs and the float32 output do not change.

    Values below 6e-5 lose bits and values below 3e-8 become 0, which is negligible in sums with larger values.

    Raises:
        StageFailedError: a weight exceeds the range of float16; the message names it.
    """
    return _Halving(model).model()


class _Halving:
    """Rewrites every node, with a Cast where a tensor is read in another precision than it has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        graph = model.graph
        self._makers = {output: node for node in graph.node for output in node.output}
        self._constants = {item.name: item for item in graph.initializer}
        self._kept = set(self._kept_in_float32())
        self._floats = set(_float_tensors(model))
        self._nodes: dict[str, onnx.NodeProto] = {}
        self._stored = {name: item for name, item in self._constants.items() if name not in self._floats}

    def model(self) -> onnx.ModelProto:
        for node in self._model.graph.node:
            self._rewrite(node)
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        del made.graph.node[:], made.graph.initializer[:]
        made.graph.node.extend(self._nodes.values())
        made.graph.initializer.extend(self._stored.values())
        onnx.checker.check_model(made, full_check=True)  # it infers what every tensor is: a Cast that lacks is found
        return made

    def _kept_in_float32(self) -> Iterator[str]:
        """The names of float32 nodes: softmax and head, with the nodes before them as far as the next products.

        The product of the head is float32; the product of queries and keys is not.
        """
        graph = self._model.graph
        scores = [node.output[0] for node in graph.node if node.op_type == "Softmax"]
        yield from (node.name for node in self._back_to_products(scores) if node.op_type != "MatMul")
        yield from (node.name for node in self._back_to_products([item.name for item in graph.output]))

    def _back_to_products(self, waiting: list[str]) -> Iterator[onnx.NodeProto]:
        """The nodes that compute `tensors`, and the nodes before them, up to a MatMul on every path."""
        while waiting:
            node = self._makers.get(waiting.pop())
            if node is not None:
                yield node
                waiting += node.input if node.op_type != "MatMul" else ()

    def _rewrite(self, node: onnx.NodeProto) -> None:
        kind = self._kind(node)
        own = onnx.NodeProto()
        own.CopyFrom(node)
        own.input[:] = [self._read_as(kind, name) if name in self._floats else name for name in node.input]
        if node.op_type == "LayerNormalization":
            own.attribute.append(helper.make_attribute("stash_type", TensorProto.FLOAT))
        for attribute in own.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
        self._nodes[own.name] = own

    def _kind(self, node: onnx.NodeProto) -> int:
        """The element type of the node's float tensors."""
        return TensorProto.FLOAT if node.name in self._kept else TensorProto.FLOAT16

    def _read_as(self, kind: int, name: str) -> str:
        """The name of the float tensor `name` in the element type `kind`, with a Cast if needed."""
        if name in self._constants:
            return self._constant_as(kind, name)
        if self._kind(self._makers[name]) == kind:
            return name
        cast = f"{name}.{_NAMES[kind]}"
        if cast not in self._nodes:
            self._nodes[cast] = helper.make_node("Cast", [name], [cast], name=cast, to=kind)
        return cast

    def _constant_as(self, kind: int, name: str) -> str:
        """Check that no constant is read both in float32 and in float16."""
        if name not in self._stored:
            item = self._constants[name]
            self._stored[name] = item if kind == TensorProto.FLOAT else _halved(item)
        assert self._stored[name].data_type == kind, name
        return name


def _float_tensors(model: onnx.ModelProto) -> Iterator[str]:
    """The names of all float32 tensors, including constants."""
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        if item.type.tensor_type.elem_type == TensorProto.FLOAT:
            yield item.name
    yield from (item.name for item in model.graph.initializer if item.data_type == TensorProto.FLOAT)


def _halved(item: onnx.TensorProto) -> onnx.TensorProto:
    value = numpy_helper.to_array(item)
    largest = float(np.abs(value).max(initial=0))
    if not largest <= LARGEST:
        raise StageFailedError(
            f"export: {item.name} does not fit into float16",
            why=f"it holds {largest:.6g}, and float16 ends at {LARGEST:,.0f}",
            fix="write `quantize: {method: ptq}` or `none`",
        )
    return numpy_helper.from_array(value.astype(np.float16), item.name)
