"""Imported classifiers of texts, as the runtime reads them: `input_ids` and perhaps `token_type_ids` to `logits`.

Nodes around the imported graph do the rest: they compute the attention mask from the ids, take the input of a final
softmax, put the tag `O` first, and join the start and the end of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from edgepack.artifacts import Precision
from edgepack.errors import StageFailedError
from edgepack.onnx_graph.graph_writer import OUTPUT
from edgepack.onnx_graph.recognise import IDS, TYPES
from edgepack.onnx_graph.utils import Array, GraphView, drop_unused, every_node

MASK: Final = "attention_mask"
_PREFIX: Final = "imported/"  # before the names of the imported graph
# What an input is for -> words that its name may hold, as BERT of TensorFlow, Hugging Face and PaddleNLP write it.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    IDS: ("input_ids", "src_ids"),
    TYPES: ("token_type_ids", "segment_ids", "sent_ids"),
    MASK: ("mask",),
}
_PROBABILITIES: Final = ("Softmax", "LogSoftmax", "Sigmoid")
_AXES: Final = ("texts", "tokens")


class ImportedClassifier:
    """The inputs and the output of a given graph.

    Args:
        model: the graph.
        ends: whether it may give the start and the end of an answer as two outputs, each of shape (texts, tokens).

    Attributes:
        names: what an input is for (IDS, TYPES, MASK) -> its name in the graph.

    Raises:
        StageFailedError: an input is unknown, a shape is fixed, or it is not clear which output has the logits.
    """

    def __init__(self, model: onnx.ModelProto, *, ends: bool = False) -> None:
        constants = {item.name for item in model.graph.initializer}
        self._model = model
        self._inputs = {value.name: value for value in model.graph.input if value.name not in constants}
        self.names = _roles(list(self._inputs))
        self._outputs = _outputs(model.graph.output, ends)
        for name in self.names.values():
            _require_any_size(self._inputs[name])

    def feeds(self, ids: Array, types: Array, pad_id: int) -> dict[str, Array]:
        """The inputs of the imported graph for a batch, both of shape (texts, tokens)."""
        values = {IDS: ids, TYPES: types, MASK: ids != pad_id}
        return {
            name: values[role].astype(helper.tensor_dtype_to_np_dtype(_type(self._inputs[name])))
            for role, name in self.names.items()
        }

    def adapted(self, pad_id: int, order: Sequence[int] | None = None) -> onnx.ModelProto:
        """The graph for the runtime: int64 ids and types of shape (texts, tokens) in, float32 logits out.

        Args:
            pad_id: id of [PAD], which the mask hides.
            order: positions of the outputs in the order of the labels; None: as they are.
        """
        made = onnx.compose.add_prefix(self._model, _PREFIX)
        graph = made.graph
        before, inputs = [], []
        for role, name in self.names.items():
            given, tensor = _PREFIX + name, role
            if role == MASK:
                graph.initializer.append(onnx.numpy_helper.from_array(np.array(pad_id, np.int64), "pad_id"))
                before += [
                    helper.make_node("Equal", [IDS, "pad_id"], ["is_padding"]),
                    helper.make_node("Not", ["is_padding"], ["is_token"]),
                ]
                tensor = "is_token"
            else:
                inputs.append(helper.make_tensor_value_info(role, TensorProto.INT64, _AXES))
            before.append(helper.make_node("Cast", [tensor], [given], to=_type(self._inputs[name])))
        view, after = GraphView(made), []
        found = [_before_probabilities(view, _PREFIX + value.name) for value in self._outputs]
        logits, cast = found[0]
        if len(found) > 1:
            graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 0, 1], np.int64), "each"))
            names = [f"end_{number}" for number in range(len(found))]
            after += [
                helper.make_node("Reshape", [one, "each"], [name]) for (one, _), name in zip(found, names, strict=True)
            ]
            after.append(helper.make_node("Concat", names, ["ends"], axis=-1))
            logits, cast = "ends", any(cast for _, cast in found)
        if order is not None:
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(order, np.int64), "order"))
            after.append(helper.make_node("Gather", [logits, "order"], ["in_order"], axis=-1))
            logits = "in_order"
        if cast or _type(self._outputs[0]) != TensorProto.FLOAT:
            after.append(helper.make_node("Cast", [logits], [OUTPUT], to=TensorProto.FLOAT))
        else:
            after.append(helper.make_node("Identity", [logits], [OUTPUT]))
        nodes = [*before, *graph.node, *after]
        fed = {_PREFIX + name for name in self._inputs}
        kept = [value for value in graph.input if value.name not in fed]
        rank = (len(self._outputs[0].type.tensor_type.shape.dim) or 2) + (len(found) > 1)
        result = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [*_AXES[: rank - 1], "labels"])
        for field, values in ((graph.node, nodes), (graph.input, [*kept, *inputs]), (graph.output, [result])):
            values = [type(value).FromString(value.SerializeToString()) for value in values]
            del field[:]
            field.extend(values)
        drop_unused(made)
        return made


def precision_of(model: onnx.ModelProto) -> Precision:
    """The precision in which a graph computes, by its operators and weights."""
    if any("Quantize" in node.op_type or "Integer" in node.op_type for node in every_node(model.graph)):
        return "int8"
    half = any(item.data_type == TensorProto.FLOAT16 for item in model.graph.initializer)
    return "float16" if half else "float32"


def _roles(inputs: Sequence[str]) -> dict[str, str]:
    """What each input is for. One or two inputs without a known name are ids and types."""
    found = {}
    for name in inputs:
        for role, words in _NAMES.items():
            if any(word in name for word in words):
                found[role] = name
    if not found and len(inputs) <= 2:
        found = dict(zip((IDS, TYPES), inputs, strict=False))
    if IDS not in found or len(found) < len(inputs):
        raise StageFailedError(
            f"graphs: the graph reads {', '.join(inputs) or 'nothing'}",
            why=f"a classifier of texts reads {IDS}, and may read {TYPES} and {MASK}",
            fix="export it with these inputs alone; or use `task: custom` with a handler",
        )
    return {role: found[role] for role in _NAMES if role in found}


def _outputs(outputs: Sequence[onnx.ValueInfoProto], ends: bool) -> Sequence[onnx.ValueInfoProto]:
    if ends and len(outputs) == 2:
        # In PaddleNLP's and Hugging Face's models the start is the first.
        return sorted(outputs, key=lambda value: "end" in value.name)
    named = [value for value in outputs if OUTPUT in value.name]
    if len(named or outputs) != 1:
        raise StageFailedError(
            f"graphs: the graph gives {', '.join(value.name for value in outputs)}",
            why=f"it is not clear which of them has a number for each label: none is called {OUTPUT}",
            fix="export it with that output alone",
        )
    return [(named or outputs)[0]]


def _require_any_size(value: onnx.ValueInfoProto) -> None:
    sizes = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
    if any(sizes):
        shape = " x ".join(str(size or "any") for size in sizes)
        raise StageFailedError(
            f"graphs: the input {value.name} has the fixed shape {shape}",
            why="texts differ in length, and a batch has any number of them",
            fix="export it with dynamic axes for texts and tokens",
        )


def _type(value: onnx.ValueInfoProto) -> int:
    return int(value.type.tensor_type.elem_type)


def _before_probabilities(view: GraphView, name: str) -> tuple[str, bool]:
    """The input of a final softmax or sigmoid, else `name`; and whether its type may be another than that of `name`."""
    makers = view.makers
    at, cast = name, False
    while at in makers and makers[at].op_type in ("Identity", "Cast"):
        cast |= makers[at].op_type == "Cast"
        at = makers[at].input[0]
    return (makers[at].input[0], cast) if at in makers and makers[at].op_type in _PROBABILITIES else (name, False)
