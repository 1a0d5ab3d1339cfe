"""External data is found in any tensor of a model."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgepack_runtime.bundle import onnx_file
from edgepack_runtime.bundle.onnx_file import Budget, TooManyFieldsError, is_self_contained


def tensor(*, external: bool, name: str = "w") -> TensorProto:
    made = helper.make_tensor(name, TensorProto.FLOAT, [300], np.ones(300, np.float32))
    if external:
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value="../../../etc/passwd")
    return made


def constant(value: TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=value)


def graph(*nodes: onnx.NodeProto, **parts: object) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], **parts)


def in_initializer(value: TensorProto) -> onnx.ModelProto:
    return helper.make_model(graph(initializer=[value]))


def in_attribute(value: TensorProto) -> onnx.ModelProto:
    return helper.make_model(graph(constant(value)))


def in_list(value: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("X", [], ["x"], domain="d")
    node.attribute.append(helper.make_attribute("many", [tensor(external=False), value]))
    return helper.make_model(graph(node))


def in_branch(value: TensorProto) -> onnx.ModelProto:
    inner = graph(helper.make_node("If", ["c"], ["y"], then_branch=graph(constant(value)), else_branch=graph()))
    return helper.make_model(graph(helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph())))


def in_sparse(value: TensorProto) -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(values=tensor(external=False), indices=value, dims=[300])
    return helper.make_model(graph(sparse_initializer=[sparse]))


def in_function(value: TensorProto) -> onnx.ModelProto:
    made = in_initializer(tensor(external=False))
    made.functions.append(helper.make_function("d", "F", [], ["c"], [constant(value)], []))
    return made


def in_training(value: TensorProto) -> onnx.ModelProto:
    made = in_initializer(tensor(external=False))
    made.training_info.append(onnx.TrainingInfoProto(initialization=graph(constant(value))))
    return made


PLACES = [in_initializer, in_attribute, in_list, in_branch, in_sparse, in_function, in_training]


def alone(raw: bytes, step: int = 7) -> bool:
    return is_self_contained((raw[start : start + step] for start in range(0, len(raw), step)), len(raw))


@pytest.mark.parametrize("place", PLACES)
def test_external_data_of_any_tensor_is_found(place: Callable[[TensorProto], onnx.ModelProto]) -> None:
    assert alone(place(tensor(external=False)).SerializeToString())
    assert not alone(place(tensor(external=True)).SerializeToString())


def test_either_mark_of_external_data_is_enough() -> None:
    only_mark, only_location = tensor(external=True), tensor(external=True)
    del only_mark.external_data[:]
    only_location.data_location = TensorProto.DEFAULT
    for one in (only_mark, only_location):
        assert not alone(in_initializer(one).SerializeToString())
    parts = [in_initializer(tensor(external=external)).SerializeToString() for external in (False, True)]
    assert not alone(b"".join(parts))  # protobuf merges the two


def field(key: bytes, data: bytes) -> bytes:
    """A field of fewer than 128 bytes, whose key is written as given."""
    assert len(data) < 128
    return key + bytes([len(data)]) + data


@pytest.mark.parametrize("which", range(3), ids=["graph", "initializer", "external data"])
def test_field_numbers_beyond_32_bits_are_refused(which: int) -> None:
    """ONNX Runtime would drop the higher bits and read a known field."""
    keys = [b"\x3a", b"\x2a", b"\x6a"]
    plain = field(keys[0], field(keys[1], field(keys[2], b"")))
    assert not alone(plain)
    keys[which] = bytes([keys[which][0] | 0x80, 0x80, 0x80, 0x80, 0x10])
    with pytest.raises(ValueError, match="29 bits"):
        alone(field(keys[0], field(keys[1], field(keys[2], b""))))


def test_a_mark_that_onnx_runtime_cuts_to_32_bits() -> None:
    mark = b"\x70\x81\x80\x80\x80\x10"
    assert not alone(field(b"\x3a", field(b"\x2a", mark)))
    assert alone(field(b"\x3a", field(b"\x2a", b"\x70\x00")))


@pytest.mark.parametrize(
    "raw",
    [b"\0", b"\x3a", b"\x3a\x05\x0a", b"\xff" * 11, b"\x0b", b"\x3a\x02\x2a\x05", b"\x08", b"\x0d\0\0", bytes(1000)],
)
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        alone(raw)


def test_deeply_nested_messages_are_refused() -> None:
    raw = b""
    for _ in range(200):  # the graph of an attribute of a node of a graph, and so on
        for key in (b"\x32", b"\x2a", b"\x0a"):
            length = len(raw)
            raw = key + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + raw
    with pytest.raises(ValueError, match="deep"):
        alone(b"\x3a" + bytes([len(raw) & 127 | 128, len(raw) >> 7]) + raw)


def test_it_stops_reading_at_external_data() -> None:
    raw = in_initializer(tensor(external=True)).SerializeToString()

    def chunks() -> Iterator[bytes]:
        yield raw
        raise AssertionError("read on")

    assert not is_self_contained(chunks(), len(raw) + 10**9)


def test_fields_have_a_limit_in_one_file_and_in_several_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MOST_FIELDS", 10)
    number, empty = b"\x08\x01", b"\x12\x00"
    nested = b"\x3a\x12" + number * 9  # a graph, and what is in it
    for raw in (number * 10, empty * 10, nested):
        assert alone(raw)
        with pytest.raises(TooManyFieldsError, match="more than 10 fields"):
            alone(raw + number)
    budget = Budget()
    assert all(is_self_contained(iter([number * 5]), 10, budget) for _ in range(2))
    with pytest.raises(TooManyFieldsError):
        is_self_contained(iter([number]), 2, budget)


def length_prefixed(key: bytes, data: bytes) -> bytes:
    size, length = len(data), b""
    while size >= 128:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return key + length + bytes([size]) + data


def of_nested_nodes(levels: int, name: bytes, names: int) -> bytes:
    """A model of nodes in graphs of nodes, each with so many names of its operator and of its domain."""
    raw = b""
    for _ in range(levels):
        inner = length_prefixed(b"\x2a", length_prefixed(b"\x32", raw)) if raw else b""
        listed = b"".join(length_prefixed(key, name) for key in (b"\x22", b"\x3a")) * names
        raw = length_prefixed(b"\x0a", listed + inner)  # the names stand before what is walked
    return length_prefixed(b"\x3a", raw)


def test_names_of_nested_nodes_take_little_memory(tmp_path: Path) -> None:
    plain, long = of_nested_nodes(12, b"x" * 4096, 320), of_nested_nodes(2, b"x" * 4097, 1)
    assert len(plain) > 30 * 2**20
    tracemalloc.start()
    try:
        assert is_self_contained(iter([plain]), len(plain)) and is_self_contained(iter([long]), len(long))
        assert tracemalloc.get_traced_memory()[1] < 2**20
        (graph := tmp_path / "a.onnx").write_bytes(plain)
        with pytest.raises(ValueError, match="its names have more than 16777216 bytes together"):
            list(onnx_file.messages_of(graph, onnx_file.ONNX, "model"))
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
        graph.write_bytes(long)
        with pytest.raises(ValueError, match="a name is too long"):
            list(onnx_file.messages_of(graph, onnx_file.ONNX, "model"))
    finally:
        tracemalloc.stop()


def test_a_message_takes_no_longer_for_those_around_it() -> None:
    many = length_prefixed(b"\x0a", b"") * 20_000
    deep = many
    for _ in range(32):
        deep = length_prefixed(b"\x0a", length_prefixed(b"\x2a", length_prefixed(b"\x32", deep)))

    def seconds(graph: bytes) -> float:
        raw = length_prefixed(b"\x3a", graph)
        began = time.process_time()
        assert is_self_contained(iter([raw]), len(raw))
        return time.process_time() - began

    assert min(seconds(deep) for _ in range(5)) < 2 * min(seconds(many) for _ in range(5))


def test_a_long_name_is_not_read_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    node = b"\x22\xff\x1f\x00" + b"x" * 4095
    monkeypatch.setattr(onnx_file._Stream, "_byte", lambda _: pytest.fail("a byte alone"))
    chunks = iter([node[:4], node[4:100], node[100:]])
    stream = onnx_file._Stream(chunks)
    stream._next()
    stream.skip(4)
    assert (stream.read(4095), stream.position) == (b"x" * 4095, len(node))
    assert stream.read(0) == b""


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_give_a_result_or_an_error(raw: bytes, step: int) -> None:
    answers = []
    for size in (step, len(raw) + 1):
        try:
            answers.append(alone(raw, size))
        except ValueError as error:
            answers.append(str(error))  # type: ignore[arg-type]
    assert answers[0] == answers[1]
    if answers[0] is False:
        return
    try:  # what the reference takes, it does not take differently
        found = onnx.ModelProto.FromString(raw)
    except Exception:  # noqa: BLE001 - protobuf's errors differ between its implementations
        return
    tensors = [one for one in found.graph.initializer if one.external_data or one.data_location]
    assert not tensors
