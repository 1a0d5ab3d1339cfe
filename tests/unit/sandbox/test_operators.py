"""Operators of graphs that a user brought, and the files that they name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from tests.unit.sandbox.attacks import endless, external, field, model, write_pdmodel

from edgepack.errors import StageFailedError
from edgepack.sandbox import operators

Y = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])]


def saved(path: Path, made: onnx.ModelProto) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def in_branch(node: onnx.NodeProto) -> onnx.ModelProto:
    branch = helper.make_graph([node], "branch", [], Y)
    return model(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))


def in_function(node: onnx.NodeProto) -> onnx.ModelProto:
    made = model(helper.make_node("Twice", ["x"], ["y"], domain="own"))
    made.functions.append(helper.make_function("own", "Twice", ["x"], ["y"], [node], [helper.make_opsetid("", 17)]))
    return made


def in_training(node: onnx.NodeProto) -> onnx.ModelProto:
    made = model(helper.make_node("Neg", ["x"], ["y"]))
    made.training_info.add().algorithm.CopyFrom(helper.make_graph([node], "step", [], Y))
    return made


@pytest.mark.parametrize("place", [model, in_branch, in_function, in_training])
@pytest.mark.parametrize(
    ("operator", "domain"),
    [("PythonOp", "com.microsoft"), ("EPContext", "com.microsoft"), ("Neg", "org.pytorch.aten"), ("NoSuch", "")],
)
def test_an_operator_that_is_not_known_is_refused_wherever_it_is(
    tmp_path: Path, place: Any, operator: str, domain: str
) -> None:
    graph = saved(tmp_path / "a.onnx", place(helper.make_node(operator, ["x"], ["y"], domain=domain)))
    with pytest.raises(StageFailedError, match=rf"not allowed: .*{operator}"):
        operators.require_known(graph)


def test_a_function_does_not_hide_an_operator_of_its_name(tmp_path: Path) -> None:
    made = in_function(helper.make_node("Neg", ["x"], ["y"]))
    made.functions[0].name = made.graph.node[0].op_type = "PythonOp"
    operators.require_known(saved(tmp_path / "a.onnx", made))
    made.functions[0].domain = made.graph.node[0].domain = "com.microsoft"
    with pytest.raises(StageFailedError, match="PythonOp"):
        operators.require_known(saved(tmp_path / "a.onnx", made))


def test_of_two_names_of_a_function_the_last_counts(tmp_path: Path) -> None:
    made = in_function(helper.make_node("Neg", ["x"], ["y"]))
    function, node = made.functions[0], made.graph.node[0]
    function.name, function.domain = "Z", "org.pytorch.aten"
    node.op_type, node.domain = "ATen", "org.pytorch.aten"
    raw = function.SerializeToString()
    named = helper.make_model(made.graph).SerializeToString()  # without functions
    first = b"\x0a\x04ATen" + raw  # a name before the other one
    file = tmp_path / "a.onnx"
    file.write_bytes(named + b"\xca\x01" + varint(len(first)) + first)
    with pytest.raises(StageFailedError, match="ATen"):
        operators.require_known(file)


def test_a_number_in_place_of_a_name_is_refused(tmp_path: Path) -> None:
    """A library skips it, and takes the domain before it."""
    made = in_function(helper.make_node("Neg", ["x"], ["y"]))
    made.functions[0].name = made.graph.node[0].op_type = "EPContext"
    made.functions[0].domain, made.graph.node[0].domain = "5", "com.microsoft"
    raw = made.SerializeToString()
    node = made.graph.node[0].SerializeToString()
    graph = made.graph.SerializeToString()
    forged = graph.replace(varint(len(node)) + node, varint(len(node) + 2) + node + b"\x38\x05")
    file = tmp_path / "a.onnx"
    file.write_bytes(raw.replace(varint(len(graph)) + graph, varint(len(forged)) + forged))
    assert onnx.load(str(file)).graph.node[0].domain == "com.microsoft"
    with pytest.raises(StageFailedError, match="is a number"):
        operators.require_known(file)


def varint(number: int) -> bytes:
    return bytes([number % 128 + 128, number // 128]) if number > 127 else bytes([number])


@pytest.mark.parametrize("place", [model, in_branch, in_function, in_training])
def test_standard_operators_are_allowed_everywhere(tmp_path: Path, place: Any) -> None:
    operators.require_known(saved(tmp_path / "a.onnx", place(helper.make_node("Neg", ["x"], ["y"]))))
    operators.require_known(saved(tmp_path / "b.onnx", endless()))  # what a loop does, limits of time decide
    gelu = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    operators.require_known(saved(tmp_path / "c.onnx", place(gelu)))


@pytest.mark.parametrize("blocks", [[["save_combine"]], [["relu"], ["while"], ["relu", "py_func"]]])
def test_a_program_of_paddle_2_writes_no_files(tmp_path: Path, blocks: list[list[str]]) -> None:
    graph = write_pdmodel(tmp_path / "a.pdmodel", *blocks)
    with pytest.raises(StageFailedError, match=rf"a\.pdmodel has operators that are not allowed: {blocks[-1][-1]}"):
        operators.require_known(graph)
    operators.require_known(write_pdmodel(tmp_path / "b.pdmodel", ["feed", "matmul_v2", "while", "fetch"], ["relu"]))


def test_of_a_repeated_name_each_is_looked_at(tmp_path: Path) -> None:
    """The last one counts for protobuf; another reader may take the first."""
    operator = field(3, b"relu") + field(3, b"save") + field(3, b"relu")
    (tmp_path / "a.pdmodel").write_bytes(field(1, field(4, operator)))
    with pytest.raises(StageFailedError, match="not allowed: save"):
        operators.require_known(tmp_path / "a.pdmodel")


def test_a_program_of_paddle_3_repeats_no_key(tmp_path: Path) -> None:
    graph = write_pir(tmp_path / "a.json", "1.relu")
    operators.require_known(graph)
    text = graph.read_text(encoding="ascii")
    graph.write_text(text.replace('"ops": [', '"ops": [{"#": "1.save"}], "ops": [', 1), encoding="ascii")
    with pytest.raises(StageFailedError, match="repeated"):
        operators.require_known(graph)


def write_pir(path: Path, *codes: str, inner: tuple[str, ...] = ()) -> Path:
    def block(ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": ops}]}]

    ops: list[dict[str, Any]] = [{"#": code, "A": [], "I": [], "O": []} for code in codes]
    ops.append({"#": "1.while", "A": [], "regions": block([{"#": code} for code in inner])})
    path.write_text(json.dumps({"base_code": {"magic": "pir"}, "program": {"regions": block(ops)}}), encoding="ascii")
    return path


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("1.save_combine", "pd_op.save_combine"),
        ("pd_op.save", "pd_op.save"),
        ("1.py_func", "pd_op.py_func"),
        ("1.print", "pd_op.print"),
        ("3.my_op", "3.my_op"),
        ("relu", "relu."),
        ("0.relu", "builtin.relu"),
    ],
)
def test_a_program_of_paddle_3_is_looked_at_in_all_its_regions(tmp_path: Path, code: str, name: str) -> None:
    for graph in (write_pir(tmp_path / "a.json", code), write_pir(tmp_path / "b.json", "1.relu", inner=(code,))):
        with pytest.raises(StageFailedError, match=f"not allowed: {name}"):
            operators.require_known(graph)
    known = ("p", "1.data", "1.matmul", "1.add", "1.layer_norm", "1.relu_", "1.fetch")
    operators.require_known(write_pir(tmp_path / "c.json", *known, inner=("1.scale", "2.yield")))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"ops": []}',
        '{"ops": [7]}',
        "[" * 100_000,
        '{"ops": null}',
        '{"ops": 5}',
        '{"ops": [{"#": "p"}], "ops": [{"#": "1.save"}]}',
    ],
)
def test_what_is_no_program_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="ascii")
    with pytest.raises(StageFailedError, match=r"a\.json"):
        operators.require_known(tmp_path / "a.json")


def test_weights_beside_the_graph_are_files_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inside").symlink_to("w.bin")
    os.mkfifo(folder / "pipe")
    for name in ("w.bin", "inside"):
        assert operators.outside_files(saved(folder / "a.onnx", external(name))) == (folder / name,)
    for name in ("../secret", "/etc/passwd", "/dev/zero", "link", "pipe", "missing", ".", ""):
        with pytest.raises(StageFailedError, match=r"a\.onnx is not a valid ONNX model"):
            operators.outside_files(saved(folder / "a.onnx", external(name)))


def test_a_pipe_in_place_of_a_graph_is_not_waited_for(tmp_path: Path) -> None:
    for suffix in (".onnx", ".pdmodel", ".json"):
        graph = tmp_path / f"a{suffix}"
        os.mkfifo(graph)
        with pytest.raises(StageFailedError, match="is not a regular file"):
            operators.require_known(graph)
