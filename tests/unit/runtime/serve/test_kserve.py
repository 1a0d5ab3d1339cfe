"""The Open Inference Protocol."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.bundle.model_config import FILE, JSON, TEXT, TEXTS
from edgepack_runtime.serve import kserve, requests
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.kserve import Inference
from edgepack_runtime.serve.kserve_models import ItemModel
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.tasks.labelled_spans import SpanPrediction, SpansPrediction
from edgepack_runtime.tasks.number import NumberPrediction
from edgepack_runtime.tasks.one_label import one_label
from edgepack_runtime.tasks.reading import START_END, AnswerPrediction
from edgepack_runtime.tasks.registry import NUMBER, ONE_TEXT, PAIR, READING, TOKENS
from edgepack_runtime.tasks.several_labels import several_labels


def facts(task: str = ONE_TEXT, *, multi_label: bool = False) -> ModelInfo:
    labels = {TOKENS: ("O", "B-name", "I-name"), NUMBER: ("value",), READING: START_END}.get(task, ("bad", "good"))
    item = TEXTS if task in (PAIR, READING) else TEXT
    return ModelInfo("hotel", "1.2.0", task, labels, multi_label, 16, "int8", "onnxruntime 1.31.1", ("CPU",), 1, item)


def tensor(data: Any, name: str = "text", **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data or ())], "datatype": "BYTES", "data": data, **changes}


def packed(*texts: str) -> bytes:
    """A binary tensor of BYTES."""
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def binary(size: Any, count: int, name: str = "text") -> dict[str, Any]:
    return {"name": name, "shape": [count], "datatype": "BYTES", "parameters": {"binary_data_size": size}}


def parse(document: Any, of: ModelInfo | None = None, tail: bytes = b"") -> Inference:
    return ItemModel(of or facts(), max_texts=4).parse(document, tail)


def response(inference: Inference, predictions: Any, of: ModelInfo | None = None) -> tuple[dict[str, Any], bytes]:
    return ItemModel(of or facts(), max_texts=4).response(inference, predictions)


def test_a_request_is_read() -> None:
    found = parse({"id": "7", "inputs": [tensor(["好", "差"])], "outputs": [{"name": "score"}]})
    assert found == (["好", "差"], "7", ("score",), frozenset())
    every = ("label", "score", "scores")
    assert parse({"inputs": [tensor([["好"], ["差"]], shape=[2, 1])]}) == (["好", "差"], None, every, frozenset())
    assert parse({"inputs": [tensor(["好", "差"], shape=[2, 1])], "outputs": []}).items == ["好", "差"]


def test_a_request_of_pairs_is_read() -> None:
    inputs = [tensor(["b", "d"], "text_pair"), tensor(["a", "c"])]
    assert parse({"inputs": inputs}, facts(PAIR)).items == [("a", "b"), ("c", "d")]
    with pytest.raises(HttpError, match="`text_pair` is missing"):
        parse({"inputs": [tensor(["a"])]}, facts(PAIR))
    with pytest.raises(HttpError, match="not have the same number"):
        parse({"inputs": [tensor(["a"]), tensor(["b", "c"], "text_pair")]}, facts(PAIR))


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        ([], 400, "not a JSON object"),
        ({}, 400, "`inputs` is not a list"),
        ({"inputs": []}, 400, "`text` is missing"),
        ({"inputs": ["text"]}, 400, "the inputs of this model are text"),
        ({"inputs": [tensor(["a"], "x")]}, 400, "the inputs of this model are text"),
        ({"inputs": [tensor(["a"]), tensor(["a"])]}, 400, "each once"),
        ({"inputs": [tensor(["a"], datatype="FP32")]}, 400, "is BYTES"),
        ({"inputs": [tensor([], shape=[0])]}, 400, "there is no text"),
        ({"inputs": [tensor(["a"], shape=[2])]}, 400, "does not match its data"),
        ({"inputs": [tensor(["a"], shape=[1, 2])]}, 400, "[n] or [n, 1]"),
        ({"inputs": [tensor(["a"], shape=[])]}, 400, "[n] or [n, 1]"),
        ({"inputs": [tensor(["a"], shape=[True])]}, 400, "is not a list of sizes"),
        ({"inputs": [tensor(["a"], shape=[-1])]}, 400, "is not a list of sizes"),
        ({"inputs": [tensor(["a"], shape=[2**63])]}, 400, "is not a list of sizes"),
        ({"inputs": [tensor(["a"], shape=[1] * 33)]}, 400, "is not a list of sizes"),
        ({"inputs": [tensor(["a"], shape=1)]}, 400, "is not a list of sizes"),
        ({"inputs": [tensor(None)]}, 400, "no list `data`"),
        ({"inputs": [tensor(["a"], parameters=3)]}, 400, "`parameters` of text"),
        ({"inputs": [tensor(["a"])], "parameters": []}, 400, "`parameters` of the request"),
        ({"inputs": [tensor(["a"])], "parameters": {"binary_data_output": 1}}, 400, "`binary_data_output` is true or"),
        ({"inputs": [tensor(["a"])], "outputs": [{"name": "label"}, {"name": "label"}]}, 400, "each once"),
        ({"inputs": [tensor(["a"])], "outputs": [{"name": "label", "parameters": {"classification": 2}}]}, 400, "clas"),
        ({"inputs": [tensor(["a"])], "id": 3}, 400, "`id`"),
        ({"inputs": [tensor(["a"])], "outputs": [{"name": "x"}]}, 400, "the outputs of this model are label"),
        ({"inputs": [tensor(["a"])], "outputs": "label"}, 400, "the outputs of this model are label"),
        ({"inputs": [tensor(["a", " "])]}, 422, "text 2 is empty"),
        ({"inputs": [tensor(["a", "\ufeff"])]}, 422, "text 2 is empty"),
        ({"inputs": [tensor([1])]}, 422, "text 1 is not a text"),
        ({"inputs": [tensor(["a"] * 5)]}, 422, "5 texts are more than 4"),
    ],
)
def test_a_malformed_request_is_refused(document: Any, status: int, words: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse(document)
    assert caught.value.status == status
    assert words in caught.value.message


def test_binary_inputs() -> None:
    first, second = packed("a", "房间"), packed("b", "")
    document = {"inputs": [binary(len(first), 2), binary(len(second), 2, "text_pair")]}
    with pytest.raises(HttpError, match="text 2 is empty"):
        parse(document, facts(PAIR), first + second)
    second = packed("b", "d")
    document["inputs"][1] = binary(len(second), 2, "text_pair")
    assert parse(document, facts(PAIR), first + second).items == [("a", "b"), ("房间", "d")]
    mixed = {"inputs": [tensor(["c", "e"], "text_pair"), binary(len(first), 2)]}
    assert parse(mixed, facts(PAIR), first).items == [("a", "c"), ("房间", "e")]


@pytest.mark.parametrize(
    ("inputs", "tail", "words"),
    [
        ([binary(5, 1)], b"", "does not match the bytes"),
        ([binary(True, 1)], packed("a"), "does not match the bytes"),
        ([binary(-1, 1)], packed("a"), "does not match the bytes"),
        ([{**binary(5, 1), "data": ["a"]}], packed("a"), "does not match the bytes"),
        ([binary(5, 1)], packed("a") + b"x", "1 bytes after the JSON"),
        ([tensor(["a"])], b"xy", "2 bytes after the JSON"),
        ([binary(5, 2)], packed("a"), "does not match its data"),
        ([binary(10, 1)], packed("a", "b"), "does not match its data"),
        ([binary(3, 1)], packed("a")[:3], "end within an element"),
        ([binary(4, 1)], struct.pack("<I", 9), "end within an element"),
        ([binary(5, 1)], struct.pack("<I", 1) + b"\xff", "an element of `text` is not UTF-8"),
    ],
)
def test_binary_inputs_that_are_refused(inputs: list[Any], tail: bytes, words: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse({"inputs": inputs}, tail=tail)
    assert caught.value.status == 400
    assert words in caught.value.message


def handled(item: str) -> ModelInfo:
    return ModelInfo("given", "1.2.0", "custom", (), False, 0, "float32", "onnxruntime 1.31.1", ("CPU",), 1, item)


@pytest.mark.parametrize(("item", "name"), [(TEXT, "text"), (JSON, "item"), (FILE, "file")])
@pytest.mark.parametrize("declared", [4, 5, 3_000_000])
def test_too_many_elements_are_not_unpacked(
    item: str, name: str, declared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that the shape declares, nor those that it does not."""
    unpacked: list[bytes] = []

    class Lengths:
        size = 4

        def unpack_from(self, raw: bytes, at: int) -> tuple[int]:
            unpacked.append(raw[at : at + 4])
            return struct.unpack_from("<I", raw, at)  # type: ignore[return-value]

    monkeypatch.setattr(kserve, "_LENGTH", Lengths())
    tail = struct.pack("<I", 1) + b"0"
    tail *= 1000
    with pytest.raises(HttpError) as caught:
        parse({"inputs": [binary(len(tail), declared, name)]}, facts() if item == TEXT else handled(item), tail)
    assert caught.value.status == (400 if declared == 4 else 422)
    assert len(unpacked) <= 4


def test_the_values_of_all_elements_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_VALUES", 10)
    element = "[0,0,0,0]"
    for count in (2, 3):
        tail = packed(*[element] * count)
        asked = [tensor([element] * count, "item")], [binary(len(tail), count, "item")]
        for inputs, rest in zip(asked, (b"", tail), strict=True):
            if count == 2:
                assert parse({"inputs": inputs}, handled(JSON), rest).items == [[0] * 4] * 2
            else:
                with pytest.raises(HttpError, match="more than 10 values"):
                    parse({"inputs": inputs}, handled(JSON), rest)


ONE_LABEL = [one_label(("bad", "good"), row) for row in ([0.0, 2.0], [1.0, 0.0])]


def test_an_answer_has_the_outputs_that_were_asked_for() -> None:
    found, tail = response(parse({"id": "7", "inputs": [tensor(["a", "b"])]}), ONE_LABEL)
    assert (found["model_name"], found["model_version"], found["id"], tail) == ("hotel", "1.2.0", "7", b"")
    label, score, scores = found["outputs"]
    assert label == {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["good", "bad"]}
    assert score["data"] == [0.880797, 0.731059]
    assert (scores["shape"], scores["data"]) == ([2, 2], [0.119203, 0.880797, 0.731059, 0.268941])
    wanted = parse({"inputs": [tensor(["a", "b"])], "outputs": [{"name": "score"}, {"name": "label"}]})
    found, _ = response(wanted, ONE_LABEL)
    assert [entry["name"] for entry in found["outputs"]] == ["score", "label"]


def test_an_answer_has_binary_outputs_where_that_is_asked_for() -> None:
    request = {"inputs": [tensor(["a", "b"])], "parameters": {"binary_data_output": True, "priority": 3}}
    found, tail = response(parse(request), ONE_LABEL)
    label, score, scores = found["outputs"]
    assert label["parameters"] == {"binary_data_size": 15}
    assert score["parameters"] == {"binary_data_size": 8}
    assert "data" not in label
    assert tail[:15] == packed("good", "bad")
    assert struct.unpack("<6f", tail[15:]) == pytest.approx(
        [0.880797, 0.731059, 0.119203, 0.880797, 0.731059, 0.268941]
    )
    assert scores["shape"] == [2, 2]
    outputs = [{"name": "label", "parameters": {"binary_data": False}}, {"name": "score"}]
    found, tail = response(parse({**request, "outputs": outputs}), ONE_LABEL)
    assert found["outputs"][0]["data"] == ["good", "bad"]
    assert len(tail) == 8


def test_answers_in_a_text_have_whole_numbers_as_places() -> None:
    of = facts(READING)
    predictions = [AnswerPrediction("张三", 3, 5, 0.5), AnswerPrediction("", 0, 0, 0.25)]
    inputs = [tensor(["谁", "谁"]), tensor(["是不是张三", "没有"], "text_pair")]
    document, _ = response(parse({"inputs": inputs}, of), predictions, of)
    found = {one["name"]: (one["datatype"], one["shape"], one["data"]) for one in document["outputs"]}
    assert found == {
        "answer": ("BYTES", [2], ["张三", ""]), "start": ("INT64", [2], [3, 0]), "end": ("INT64", [2], [5, 0]),
        "score": ("FP32", [2], [0.5, 0.25]),
    }  # fmt: skip
    asked = {"inputs": inputs, "outputs": [{"name": "end", "parameters": {"binary_data": True}}]}
    _, raw = response(parse(asked, of), predictions, of)
    assert raw == struct.pack("<2q", 5, 0)


def test_answers_with_several_labels_and_with_spans() -> None:
    inference = parse({"inputs": [tensor(["a"])]}, facts(multi_label=True))
    several = [several_labels(("bad", "good"), [3.0, -3.0])]
    labels, scores = response(inference, several, facts(multi_label=True))[0]["outputs"]
    assert (labels["data"], scores["shape"]) == (['["bad"]'], [1, 2])
    spans = [SpansPrediction((SpanPrediction(0, 2, "name", 0.97, "温格"),))]
    inference = parse({"inputs": [tensor(["a"])]}, facts(TOKENS))
    (only,) = response(inference, spans, facts(TOKENS))[0]["outputs"]
    assert json.loads(only["data"][0]) == [{"start": 0, "end": 2, "label": "name", "score": 0.97, "text": "温格"}]
    inference = parse({"inputs": [tensor(["a", "b"])]}, facts(NUMBER))
    (only,) = response(inference, [NumberPrediction(3.5), NumberPrediction(-0.25)], facts(NUMBER))[0]["outputs"]
    assert only == {"name": "value", "datatype": "FP32", "shape": [2], "data": [3.5, -0.25]}


@pytest.mark.parametrize(
    ("task", "multi_label"), [(ONE_TEXT, False), (ONE_TEXT, True), (PAIR, False), (TOKENS, False), (NUMBER, False)]
)
def test_the_metadata_names_what_goes_in_and_out(task: str, multi_label: bool) -> None:
    found = ItemModel(facts(task, multi_label=multi_label), max_texts=4).metadata()
    assert [entry["name"] for entry in found["inputs"]] == (["text", "text_pair"] if task == PAIR else ["text"])
    assert all(entry["shape"][0] == -1 for entry in (*found["inputs"], *found["outputs"]))
    assert found["platform"] == "onnxruntime_onnx"


_NAMES = st.sampled_from(["name", "shape", "datatype", "data", "text", "inputs", "id", "outputs"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["inputs", "id", "outputs", "parameters"]), _JSON) | _JSON, st.binary(max_size=20)
)
def test_any_json_is_read_or_refused(document: Any, tail: bytes) -> None:
    try:
        found = parse(document, tail=tail)
    except HttpError as error:
        assert error.status in (400, 422)
    else:
        assert all(isinstance(item, str) and item for item in found.items)


@given(st.lists(st.text(), min_size=1, max_size=4), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(texts: list[str], raw: bytes) -> None:
    for data in (raw, packed(*(text.encode("utf-8", "replace").decode() for text in texts)) + raw):
        try:
            found = parse({"inputs": [binary(len(data), len(texts))]}, tail=data)
        except HttpError as error:
            assert error.status in (400, 422)
        else:
            assert packed(*map(str, found.items)) == data
