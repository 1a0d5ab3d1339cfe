"""Imported classifiers of texts, adapted to what the runtime feeds and reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from tests.unit.onnx_graph.imported_texts import NAMES, model

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.imported_classifier import ImportedClassifier

IDS = np.array([[2, 4, 4, 3], [2, 5, 3, 0]])  # the second text has one token of padding
TYPES = np.zeros_like(IDS)


def run(graph: onnx.ModelProto, ids: np.ndarray = IDS, types: np.ndarray = TYPES) -> np.ndarray:
    onnx.checker.check_model(graph)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    assert [value.name for value in session.get_outputs()] == ["logits"]
    feeds = {"input_ids": ids, "token_type_ids": types}
    return np.asarray(session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})[0])


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"names": ("src_ids", "sent_ids", "input_mask"), "mask": TensorProto.FLOAT},  # of other exporters
        {"names": tuple(f"{name}:0" for name in NAMES), "integer": TensorProto.INT32, "mask": TensorProto.BOOL},
        {"end": "Softmax"},
        {"end": "Sigmoid", "output": "probs"},
    ],
)
def test_the_mask_is_computed_and_probabilities_are_undone(made: dict[str, Any]) -> None:
    wanted = np.array([[3.0, 1.0], [4 / 3, 8 / 3]], np.float32)  # ids 2, 4, 4 vote for the first of four; 2 of three
    assert np.allclose(run(ImportedClassifier(model(**made)).adapted(pad_id=0)), wanted)


@pytest.mark.parametrize("names", [("x0",), ("x0", "x1")])
def test_one_or_two_inputs_without_known_names_are_ids_and_types(names: Sequence[str]) -> None:
    found = run(ImportedClassifier(model(names=names)).adapted(pad_id=0))
    assert np.allclose(found[1], [8 / 4, 8 / 4])  # without a mask the padding votes, too


def test_tags_come_in_the_order_that_is_asked_for() -> None:
    imported = ImportedClassifier(model(names=NAMES[:2], tokens=True, labels=3))
    plain, ordered = run(imported.adapted(0)), run(imported.adapted(0, order=[2, 0, 1]))
    assert plain.shape == (2, 4, 3)
    assert np.array_equal(ordered, plain[..., [2, 0, 1]])


def test_feeds_have_the_types_of_the_imported_graph() -> None:
    imported = ImportedClassifier(model(integer=TensorProto.INT32, mask=TensorProto.FLOAT))
    feeds = imported.feeds(IDS, TYPES, pad_id=0)
    assert {name: array.dtype.name for name, array in feeds.items()} == {
        "input_ids": "int32", "token_type_ids": "int32", "attention_mask": "float32",
    }  # fmt: skip
    assert feeds["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("made", "what", "fix"),
    [
        ({"names": ("pixels", "boxes", "words")}, "the graph reads pixels, boxes, words", "handler"),
        ({"names": ("ids", "token_type_ids")}, "the graph reads ids, token_type_ids", "handler"),
        ({"shape": (1, 128)}, "the input input_ids has the fixed shape 1 x 128", "dynamic axes"),
        ({"shape": ("batch", 128)}, "the input input_ids has the fixed shape any x 128", "dynamic axes"),
    ],
)
def test_a_graph_of_another_kind_is_refused(made: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(StageFailedError, match=what) as caught:
        ImportedClassifier(model(**made))
    assert fix in caught.value.fix


def test_one_of_several_outputs_has_to_be_named_logits() -> None:
    graph = model(output="scores")
    graph.graph.output.append(onnx.helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["batch", 2]))
    with pytest.raises(StageFailedError, match="the graph gives scores, mean"):
        ImportedClassifier(graph)
    graph = model()
    graph.graph.output.append(onnx.helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["batch", 2]))
    assert np.allclose(run(ImportedClassifier(graph).adapted(0))[0], [3.0, 1.0])
