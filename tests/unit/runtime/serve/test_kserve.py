"""The Open Inference Protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime import answers
from edgepack_runtime.model_config import ONE_TEXT, PAIR, TOKENS
from edgepack_runtime.serve import kserve
from edgepack_runtime.serve.facts import Facts
from edgepack_runtime.serve.refusals import Refusal


def facts(task: str = ONE_TEXT, *, multi_label: bool = False) -> Facts:
    labels = ("O", "B-name", "I-name") if task == TOKENS else ("bad", "good")
    return Facts("hotel", "1.2.0", task, labels, multi_label, 16, "int8", "onnxruntime 1.31.1", ("CPU",), 1)


def tensor(data: Any, name: str = "text", **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data or ())], "datatype": "BYTES", "data": data, **changes}


def parse(document: Any, of: Facts | None = None) -> kserve.Inference:
    return kserve.parse(document, of or facts(), max_texts=4)


def test_a_request() -> None:
    found = parse({"id": "7", "inputs": [tensor(["好", "差"])], "outputs": [{"name": "score"}]})
    assert found == (["好", "差"], "7", ("score",))
    assert parse({"inputs": [tensor([["好"], ["差"]], shape=[2, 1])]}) == (["好", "差"], None, None)
    assert parse({"inputs": [tensor(["好", "差"], shape=[2, 1])], "outputs": []}).items == ["好", "差"]


def test_a_request_of_pairs() -> None:
    inputs = [tensor(["b", "d"], "text_pair"), tensor(["a", "c"])]
    assert parse({"inputs": inputs}, facts(PAIR)).items == [("a", "b"), ("c", "d")]
    with pytest.raises(Refusal, match="`text_pair` is missing"):
        parse({"inputs": [tensor(["a"])]}, facts(PAIR))
    with pytest.raises(Refusal, match="not have the same number"):
        parse({"inputs": [tensor(["a"]), tensor(["b", "c"], "text_pair")]}, facts(PAIR))


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        ([], 400, "no JSON object"),
        ({}, 400, "`inputs` is no list"),
        ({"inputs": []}, 400, "`text` is missing"),
        ({"inputs": ["text"]}, 400, "the inputs of this model are text"),
        ({"inputs": [tensor(["a"], "x")]}, 400, "the inputs of this model are text"),
        ({"inputs": [tensor(["a"]), tensor(["a"])]}, 400, "each once"),
        ({"inputs": [tensor(["a"], datatype="FP32")]}, 400, "is BYTES"),
        ({"inputs": [tensor([], shape=[0])]}, 400, "there is no text"),
        ({"inputs": [tensor(["a"], shape=[2])]}, 400, "not that of its data"),
        ({"inputs": [tensor(["a"], shape=[1, 2])]}, 400, "[n] or [n, 1]"),
        ({"inputs": [tensor(["a"], shape=[True])]}, 400, "[n] or [n, 1]"),
        ({"inputs": [tensor(["a"], shape=1)]}, 400, "[n] or [n, 1]"),
        ({"inputs": [tensor(None, parameters={"binary_data_size": 5})]}, 400, "binary form"),
        ({"inputs": [tensor(["a"])], "id": 3}, 400, "`id`"),
        ({"inputs": [tensor(["a"])], "outputs": [{"name": "x"}]}, 400, "the outputs of this model are label"),
        ({"inputs": [tensor(["a"])], "outputs": "label"}, 400, "the outputs of this model are label"),
        ({"inputs": [tensor(["a", " "])]}, 422, "text 2 is empty"),
        ({"inputs": [tensor([1])]}, 422, "text 1 is no text"),
        ({"inputs": [tensor(["a"] * 5)]}, 422, "5 texts are more than 4"),
    ],
)
def test_what_is_refused(document: Any, status: int, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(document)
    assert caught.value.status == status
    assert words in caught.value.message


def test_an_answer_with_one_label() -> None:
    predictions = [answers.one_label(("bad", "good"), row) for row in ([0.0, 2.0], [1.0, 0.0])]
    found = kserve.response(parse({"id": "7", "inputs": [tensor(["a", "b"])]}), predictions, facts())
    assert (found["model_name"], found["model_version"], found["id"]) == ("hotel", "1.2.0", "7")
    label, score, scores = found["outputs"]
    assert label == {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["good", "bad"]}
    assert score["data"] == [0.880797, 0.731059]
    assert (scores["shape"], scores["data"]) == ([2, 2], [0.119203, 0.880797, 0.731059, 0.268941])
    wanted = parse({"inputs": [tensor(["a", "b"])], "outputs": [{"name": "label"}]})
    assert [entry["name"] for entry in kserve.response(wanted, predictions, facts())["outputs"]] == ["label"]


def test_answers_with_several_labels_and_with_spans() -> None:
    inference = parse({"inputs": [tensor(["a"])]})
    several = [answers.several_labels(("bad", "good"), [3.0, -3.0])]
    labels, scores = kserve.response(inference, several, facts(multi_label=True))["outputs"]
    assert (labels["data"], scores["shape"]) == (['["bad"]'], [1, 2])
    spans = [answers.SpansPrediction((answers.SpanPrediction(0, 2, "name", 0.97, "温格"),))]
    (only,) = kserve.response(inference, spans, facts(TOKENS))["outputs"]
    assert json.loads(only["data"][0]) == [{"start": 0, "end": 2, "label": "name", "score": 0.97, "text": "温格"}]


@pytest.mark.parametrize(("task", "multi_label"), [(ONE_TEXT, False), (ONE_TEXT, True), (PAIR, False), (TOKENS, False)])
def test_the_metadata_names_what_goes_in_and_out(task: str, multi_label: bool) -> None:
    found = kserve.metadata(facts(task, multi_label=multi_label))
    assert [entry["name"] for entry in found["inputs"]] == (["text", "text_pair"] if task == PAIR else ["text"])
    assert all(entry["shape"][0] == -1 for entry in (*found["inputs"], *found["outputs"]))
    assert found["platform"] == "onnx_onnxruntime"


_NAMES = st.sampled_from(["name", "shape", "datatype", "data", "text", "inputs", "id", "outputs"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["inputs", "id", "outputs"]), _JSON) | _JSON)
def test_any_json_is_read_or_refused(document: Any) -> None:
    try:
        found = parse(document)
    except Refusal as refusal:
        assert refusal.status in (400, 422)
    else:
        assert all(isinstance(item, str) and item for item in found.items)
