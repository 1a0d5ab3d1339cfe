"""Helpers for ONNX graphs: tensor index, names by position, node writer, constant folding, subgraphs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from edgepack.errors import StageFailedError
from edgepack.onnx_graph import OPSET

Array = npt.NDArray[Any]


class GraphView:
    """Index of the tensors of `model.graph`. It becomes stale when the graph changes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._constants = {item.name: item for item in model.graph.initializer}

    @cached_property
    def makers(self) -> dict[str, onnx.NodeProto]:
        """The node that computes each tensor."""
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
    """The nodes of a graph and of its subgraphs, such as the branches of an `If`."""
    for node in graph.node:
        yield node
        for inner in _held(node):
            yield from every_node(inner)


def holds_graphs(graph: onnx.GraphProto) -> bool:
    """Whether any node has a subgraph."""
    return any(_held(node) for node in graph.node)


def foreign_domains(graph: onnx.GraphProto) -> list[str]:
    """The domains of non-standard operators, in order."""
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


def name_by_position(model: onnx.ModelProto, output: str) -> None:
    """Rename, in place, every node and tensor of a graph by its position. Inputs keep their names.

    A node becomes `<operator>_<n>`, and so does its output; a constant becomes `<first reader>.<position of the
    input>`. Constants are sorted by their first reader. The only output becomes `output`. In a graph with subgraphs,
    which refer to tensors by name, only the output is renamed.

    Raises:
        StageFailedError: the graph has several outputs.
    """
    graph = model.graph
    if len(graph.output) != 1:
        raise StageFailedError(f"export: the graph has {len(graph.output)} outputs, expected one")
    if holds_graphs(graph):
        _name_output(graph, output)
        return
    names = {value.name: value.name for value in graph.input}
    names[""] = ""  # an input that is left out
    constants = {item.name: item for item in graph.initializer}
    counts: dict[str, int] = {}
    for node in graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
        node.name = f"{node.op_type}_{counts[node.op_type]}"
        for position, tensor in enumerate(node.input):
            if tensor in constants:
                names.setdefault(tensor, f"{node.name}.{position}")
        for position, tensor in enumerate(node.output):
            if tensor:
                names[tensor] = node.name if position == 0 else f"{node.name}:{position}"
    names[graph.output[0].name] = output
    _rename(graph, names)
    read = [constants[tensor] for tensor in names if tensor in constants]
    for item in read:
        item.name = names[item.name]
    ordered = onnx.GraphProto(initializer=read)
    del graph.initializer[:]
    graph.initializer.extend(ordered.initializer)


def _name_output(graph: onnx.GraphProto, output: str) -> None:
    if graph.output[0].name != output:
        graph.node.append(onnx.helper.make_node("Identity", [graph.output[0].name], [output], name=output))
        graph.output[0].name = output


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names[tensor] for tensor in node.input]
        node.output[:] = [names[tensor] if tensor else "" for tensor in node.output]
    graph.output[0].name = names[graph.output[0].name]
    del graph.value_info[:]  # shapes of tensors by their old names; they follow from the graph
    graph.name = "edgepack"


MICROSOFT: Final = "com.microsoft"  # the domain of ONNX Runtime's own operators
IR_VERSION: Final = 8  # of ONNX 1.12, which came with opset 17


class Writer:
    """Writer of constants and nodes. Every name is used once."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: Array | float) -> str:
        """The name of a constant, which is written once. A number becomes float32."""
        if name not in self._constants:
            array = np.asarray(value, dtype=np.float32) if isinstance(value, float) else np.asarray(value, order="C")
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, name: str, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Write a node with one output; return the name of the output."""
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def several(self, name: str, operator: str, *inputs: str, outputs: Sequence[str], **attributes: Any) -> None:
        """Write a node with several outputs; return their names."""
        self._nodes.append(helper.make_node(operator, list(inputs), list(outputs), name=name, **attributes))

    def split(self, name: str, tensor: str, sizes: list[int]) -> list[str]:
        """Split a tensor along its last axis; return the names of the parts."""
        parts = [f"{name}.{number}" for number in range(len(sizes))]
        lengths = self.constant(f"{name}.sizes", np.array(sizes, dtype=np.int64))
        self.several(name, "Split", tensor, lengths, outputs=parts, axis=-1)
        return parts

    def model(self, inputs: list[onnx.ValueInfoProto], output: onnx.ValueInfoProto) -> onnx.ModelProto:
        """The checked graph. It imports ONNX Runtime's operator set if it uses it."""
        graph = helper.make_graph(self._nodes, "edgepack", inputs, [output], list(self._constants.values()))
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgepack")
        onnx.checker.check_model(model, full_check=not domains)
        return model


# Optimisations that would put ONNX Runtime's own fused operators into a file that is to stay neutral.
_KEEP_NEUTRAL = ["MatMulAddFusion", "GeluFusionL1", "LayerNormFusionL1"]


def fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with folded constants and without identities.

    A graph with non-standard operators, before or after folding, is returned unchanged: their versions depend on ONNX
    Runtime.

    Raises:
        StageFailedError: ONNX Runtime cannot load `model`.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "folded.onnx"
        options = _session_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        try:
            ort.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=_KEEP_NEUTRAL,
            )
        except Exception as error:
            raise StageFailedError("export: ONNX Runtime cannot load the exported graph", why=str(error)) from error
        folded = onnx.load(str(target))
    if foreign_domains(folded.graph) or foreign_domains(model.graph):
        return model
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    del folded.opset_import[:]
    folded.opset_import.append(onnx.helper.make_opsetid("", opset))
    folded.ir_version = model.ir_version
    drop_unused(folded)
    onnx.checker.check_model(folded, full_check=True)
    return folded


def ancestors(view: GraphView, tensors: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that `tensors` depend on, in graph order."""
    needed, found = set(tensors), []
    for node in reversed(view.model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            found.append(node)
    return found[::-1]


def evaluate(view: GraphView, tensors: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """The values of `tensors` for the inputs `feeds`. Only the nodes that they depend on are run.

    A tensor that no node computes is a constant or an input.
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
    [values] = run_each(part, tensors, [feeds])
    return dict(zip(tensors, values, strict=True))


def _session_options() -> Any:
    """Options of a session without messages, which takes bytes for ONNX whatever else they could be."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def run_each(model: onnx.ModelProto, tensors: Sequence[str], feeds: Iterable[Mapping[str, Array]]) -> list[list[Array]]:
    """The values of the outputs `tensors` for each of `feeds`, of which a model may read only some."""
    options = _session_options()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    read = {value.name for value in session.get_inputs()}
    return [session.run(list(tensors), {name: value for name, value in one.items() if name in read}) for one in feeds]
