"""Names by position: exporters count the layers a process has made, and a file's bytes must not hang on that."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from edgepack.errors import StageFailedError
from edgepack.graph.view import holds_graphs


def name_by_position(model: onnx.ModelProto, output: str) -> None:
    """Rename, in place, every node and tensor of a graph after its place in it; only the inputs keep their names.

    A node is `<operator>_<n>`, counted for each operator; what it makes has its name, and a constant that it is the
    first to read is `<node>.<position of the input>`. Constants end in the order of their first reader. The one
    output is called `output`. Of a graph that holds others, which read its tensors by their names, nothing but the
    output is renamed.

    Raises:
        StageFailedError: when the graph has several outputs.
    """
    graph = model.graph
    if len(graph.output) != 1:
        raise StageFailedError(f"export: the graph has {len(graph.output)} outputs where one was due")
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
