"""Graphs of a model with a handler as models of the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from onnx import TensorProto, helper
from tests.unit.runtime.imported_model import write_imported
from tests.unit.runtime.serve.asgi import Answer, ask, post, started

from edgepack_runtime.bundle.model_config import CUSTOM, FILE
from edgepack_runtime.engine.ort_api import TensorInfo
from edgepack_runtime.engine.tensors import TYPES, Tensor
from edgepack_runtime.inference.loaded_model import GraphInputs, TensorsPrediction
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import kserve_models, logs, requests
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.kserve_models import GraphModel
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.serve.settings import Settings

FACTS = ModelInfo("ocr", "1.2.0", CUSTOM, (), False, 0, "float32", "onnxruntime 1.31.1", ("CPU",), 1, FILE)
INFER = "/v2/models/imported.model/infer"
TWO_GRAPHS = """\
class Handler:
    item = "json"
    def predict(self, item, graphs):
        return graphs["detect"]({"x": [item]})["y"].tolist()[0]
    def score(self, answer, expected):
        return 1
"""


def model(inputs: dict[str, TensorInfo], outputs: dict[str, TensorInfo] | None = None) -> GraphModel:
    return GraphModel(FACTS, "detect", inputs, outputs or {"y": TensorInfo((-1,), "float32")})


PIXELS = model({"x": TensorInfo((-1, 2), "float32"), "n": TensorInfo((), "int64"), "on": TensorInfo((1,), "bool")})


def tensor(name: str, datatype: str, shape: Any, data: Any) -> dict[str, Any]:
    """An entry; `data` of type int is the size of a binary tensor."""
    found = {"name": name, "datatype": datatype, "shape": shape}
    return {**found, "parameters": {"binary_data_size": data}} if type(data) is int else {**found, "data": data}


X, N, ON = tensor("x", "FP32", [1, 2], [0.5, 1]), tensor("n", "INT64", [], [7]), tensor("on", "BOOL", [1], [True])


def datatype(dtype: str) -> str:
    return {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64"}.get(dtype, dtype.upper())


def test_inputs_are_read_as_the_graph_declares_them() -> None:
    [item] = PIXELS.parse({"inputs": [ON, N, X], "id": "7"}).items
    assert item.graph == "detect"
    assert {name: (one.dtype, one.shape, one.tolist()) for name, one in item.inputs.items()} == {
        "x": ("float32", (1, 2), [[0.5, 1.0]]),
        "n": ("int64", (), 7),
        "on": ("bool", (1,), [True]),
    }


@pytest.mark.parametrize(
    ("inputs", "tail", "words"),
    [
        ([X, N], b"", "the input `on` is missing"),
        ([X, N, ON, X], b"", "the inputs of this model are x, n, on, each once"),
        ([X, N, tensor("off", "BOOL", [1], [True])], b"", "the inputs of this model are x, n, on"),
        ([tensor("x", "FP64", [1, 2], [1, 2]), N, ON], b"", "the datatype of `x` is FP32"),
        ([tensor("x", "float32", [1, 2], [1, 2]), N, ON], b"", "the datatype of `x` is FP32"),
        ([tensor("x", "FP32", [1, 3], [1, 2, 3]), N, ON], b"", "the shape of `x` is [-1, 2], where -1 is any size"),
        ([tensor("x", "FP32", [2], [1, 2]), N, ON], b"", "the shape of `x` is [-1, 2]"),
        ([tensor("x", "FP32", [-1, 2], [1, 2]), N, ON], b"", "is not a list of sizes"),
        ([tensor("x", "FP32", [1, 2], [1, 2, 3, 4]), N, ON], b"", "the shape of `x` does not match its data"),
        ([tensor("x", "FP32", [2, 2], [[1, 2, 3, 4]]), N, ON], b"", "the shape of `x` does not match its data"),
        ([tensor("x", "FP32", [1, 2], [[1, 2], [3]]), N, ON], b"", "`x` cannot be read: its lists have different"),
        ([tensor("x", "FP32", [1, 2], ["1", "2"]), N, ON], b"", "`x` cannot be read: its values are not all float32"),
        ([tensor("x", "FP32", [1, 2], [1e39, 2]), N, ON], b"", "`x` cannot be read: its values are not all float32"),
        ([tensor("x", "FP32", [1, 2], None), N, ON], b"", "no list `data`"),
        ([X, tensor("n", "INT64", [], [1.5]), ON], b"", "`n` cannot be read: its values are not all int64"),
        ([X, N, tensor("on", "BOOL", [1], [2])], b"", "`on` cannot be read: its values are not all bool"),
        ([X, N, tensor("on", "BOOL", [1], 1)], b"\2", "the bytes of `on` are not all 0 or 1"),
        ([tensor("x", "FP32", [1, 2], 4), N, ON], bytes(4), "the shape of `x` does not match its data"),
        ([tensor("x", "FP32", [1, 2], 8), N, ON], bytes(4), "does not match the bytes after the JSON"),
        ([tensor("x", "FP32", [1, 2], 8), N, ON], bytes(9), "1 bytes after the JSON belong to no input"),
    ],
)
def test_inputs_that_do_not_fit_the_graph_are_refused(inputs: list[Any], tail: bytes, words: str) -> None:
    with pytest.raises(HttpError) as caught:
        PIXELS.parse({"inputs": inputs}, tail)
    assert (caught.value.status, caught.value.code) == (400, "malformed")
    assert words in caught.value.message


@pytest.mark.parametrize("data", [[], 0])
def test_a_tensor_without_elements_decides_about_no_memory(data: Any) -> None:
    free = model({"x": TensorInfo((-1, -1), "float32")})
    [item] = free.parse({"inputs": [tensor("x", "FP32", [1000, 0], data)]}).items
    assert item.inputs["x"].shape == (1000, 0)
    with pytest.raises(HttpError, match="holds nothing"):
        free.parse({"inputs": [tensor("x", "FP32", [10**8, 0], data)]})


def test_a_refusal_shows_the_form_of_a_request() -> None:
    with pytest.raises(HttpError) as caught:
        PIXELS.parse({})
    assert [entry["shape"] for entry in json.loads(caught.value.fix)["inputs"]] == [[1, 2], [], [1]]


ARRAYS = st.sampled_from(sorted(TYPES)).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
)


@given(ARRAYS, st.sampled_from(["flat", "nested", "binary"]), st.booleans())
def test_any_tensor_goes_in_and_comes_out_as_it_was(array: NDArray[Any], way: str, binary: bool) -> None:
    info = TensorInfo(tuple(-1 for _ in array.shape), array.dtype.name)
    echo = model({"x": info}, {"y": info})
    raw = array.tobytes() if way == "binary" else b""
    data = len(raw) if way == "binary" else array.ravel().tolist() if way == "flat" else np.atleast_1d(array).tolist()
    entry = tensor("x", datatype(array.dtype.name), list(array.shape), data)
    document = json.loads(json.dumps({"inputs": [entry], "parameters": {"binary_data_output": binary}}))
    inference = echo.parse(document, raw)
    [item] = inference.items
    assert item.inputs["x"].shape == array.shape
    try:
        found, tail = echo.response(inference, [TensorsPrediction({"y": item.inputs["x"]})])
    except HttpError as error:
        assert (error.status, "not finite" in error.message) == (422, True)
        assert not binary
        assert not np.isfinite(array).all()
        return
    [output] = found["outputs"]
    assert (output["datatype"], output["shape"]) == (entry["datatype"], list(array.shape))
    given = output.get("data")
    back = np.frombuffer(tail, array.dtype) if binary else np.array(given, array.dtype)
    assert ("data" in output) != binary
    assert output.get("parameters") == ({"binary_data_size": array.nbytes} if binary else None)
    equal = np.array_equal(back, array.ravel(), equal_nan=array.dtype.kind == "f")
    assert equal


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, _JSON, st.none() | st.integers(-1, 20), st.binary(max_size=20))
def test_any_tensor_is_read_or_refused(shape: Any, data: Any, size: int | None, tail: bytes) -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": shape, "data": data}
    if size is not None:
        entry = tensor("x", "FP32", shape, size)
    try:
        [item] = model({"x": TensorInfo((), "float32")}).parse({"inputs": [entry]}, tail).items
    except HttpError as error:
        assert error.status == 400
    else:
        assert len(item.inputs["x"].data) == 4 * math.prod(shape)


def test_outputs_are_selected_and_ordered() -> None:
    info = TensorInfo((-1,), "int8")
    of_two = model({"x": info}, {"a": info, "b": info})
    outputs = [{"name": "b"}, {"name": "a", "parameters": {"binary_data": True}}]
    inference = of_two.parse({"inputs": [tensor("x", "INT8", [1], [3])], "outputs": outputs, "id": "9"})
    tensors = {"a": Tensor(b"\1", (1,), "int8"), "b": Tensor(b"\xff\2", (2,), "int8")}
    found, tail = of_two.response(inference, [TensorsPrediction(tensors)])
    binary = {"name": "a", "datatype": "INT8", "shape": [1], "parameters": {"binary_data_size": 1}}
    assert found == {
        "model_name": "ocr.detect",
        "model_version": "1.2.0",
        "id": "9",
        "outputs": [{"name": "b", "datatype": "INT8", "shape": [2], "data": (-1, 2)}, binary],
    }
    assert tail == b"\1"


def asked_in(form: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], bytes]:
    """The response with outputs of these `sizes`, where `b` is asked for as JSON or binary, and `a` as JSON."""
    monkeypatch.setattr(requests, "MOST_VALUES", 10)
    info = TensorInfo((-1,), "float32")
    of_two = model({"x": info}, {"a": info, "b": info})
    outputs = [{"name": "a"}, {"name": "b", "parameters": {"binary_data": form == "binary"}}]
    inference = of_two.parse({"inputs": [tensor("x", "FP32", [1], [3])], "outputs": outputs})
    tensors = {name: Tensor(bytes(4 * size), (size,), "float32") for name, size in sizes.items()}
    return of_two.response(inference, [TensorsPrediction(tensors)])


def test_outputs_of_too_many_values_are_not_written_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = asked_in("JSON", {"a": 4, "b": 6}, monkeypatch)
    assert [len(entry["data"]) for entry in found["outputs"]] == [4, 6]
    assert len(asked_in("binary", {"a": 10, "b": 7}, monkeypatch)[1]) == 28

    def flat(self: Tensor) -> Any:
        raise AssertionError("the refusal comes before the tensors are unpacked")

    monkeypatch.setattr(Tensor, "flat", flat)
    for form, sizes in (("JSON", {"a": 4, "b": 7}), ("JSON", {"a": 11, "b": 0}), ("binary", {"a": 11, "b": 1})):
        with pytest.raises(HttpError, match="more than 10 values") as caught:
            asked_in(form, sizes, monkeypatch)
        assert (caught.value.status, caught.value.fix) == (422, "ask for it as a binary tensor")


def served(folder: Path, log: io.StringIO, **changes: Any) -> Middleware:
    return application.application(Settings(model=folder, **changes), logs.configure("debug", log))


async def test_outputs_have_a_limit_together(tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kserve_models, "_MOST_OUTPUT_BYTES", 40)
    async with started(served(write_imported(tmp_path / "imported"), log)) as app:
        for rows, status in ((2, 200), (3, 422)):
            asked = {"inputs": [tensor("x", "FP32", [rows, 4], [0.0] * 4 * rows)]}
            assert (await post(app, INFER, asked)).status == status


async def test_each_graph_is_a_model_beside_its_own(tmp_path: Path, log: io.StringIO) -> None:
    folder = write_imported(tmp_path / "imported", handler=TWO_GRAPHS, graphs=("detect", "read"))
    async with started(served(folder, log)) as app:
        for name in ("detect", "read"):
            place = f"/v2/models/imported.{name}"
            axes = {"datatype": "FP32", "shape": [-1, 4]}
            assert (await ask(app, "GET", place)).json() == {
                "name": f"imported.{name}",
                "versions": ["0.0.0"],
                "platform": "onnxruntime_onnx",
                "inputs": [{"name": "x", **axes}],
                "outputs": [{"name": "y", **axes}],
                "parameters": {},
            }
            assert (await ask(app, "GET", f"{place}/versions/0.0.0")).status == 200
            assert (await ask(app, "GET", f"{place}/ready")).json() == {"name": f"imported.{name}", "ready": True}
            x = tensor("x", "FP32", [2, 4], list(range(8)))
            for path in (f"{place}/infer", f"{place}/versions/0.0.0/infer"):
                answer = await post(app, path, {"inputs": [x]})
                assert "run;dur=" in answer.headers["server-timing"]
                [output] = answer.json()["outputs"]
                assert output == {"name": "y", **axes, "shape": [2, 4], "data": [2 * n + 1.0 for n in range(8)]}
        for name, code in (("imported.x", "no_such_model"), ("imported.detect/versions/2", "no_such_version")):
            answer = await ask(app, "GET", f"/v2/models/{name}")
            assert (answer.status, answer.json()["code"]) == (404, code)
        paths = (await ask(app, "GET", "/openapi.json")).json()["paths"]
        assert {f"/v2/models/imported.{name}/infer" for name in ("detect", "read")} < set(paths)
        assert (await post(app, "/predict", {"item": [1, 2, 3, 4]})).json() == [3.0, 5.0, 7.0, 9.0]
        metrics = (await ask(app, "GET", "/metrics")).body.decode()
        assert "edgepack_batch_size_count 5.0" in metrics


async def test_binary_tensors_of_a_graph(tmp_path: Path, log: io.StringIO) -> None:
    x = np.arange(4, dtype="float32").reshape(1, 4)
    document = {"inputs": [tensor("x", "FP32", [1, 4], 16)], "parameters": {"binary_data_output": True}}
    head = json.dumps(document).encode()
    async with started(served(write_imported(tmp_path / "imported"), log)) as app:
        length = {"inference_header_content_length": str(len(head))}
        answer = await ask(app, "POST", INFER, head + x.tobytes(), **length)
        size = int(answer.headers["inference-header-content-length"])
        assert json.loads(answer.body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 16}
        assert np.frombuffer(answer.body[size:], "float32").tolist() == [1.0, 3.0, 5.0, 7.0]


async def test_a_run_that_fails_is_an_error_of_the_server(tmp_path: Path, log: io.StringIO) -> None:
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [name.upper()]) for name in "aby")
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", [a, b], [y])
    folder = write_imported(tmp_path / "imported")
    opsets = [helper.make_opsetid("", 17)]
    (folder / "model.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    async with started(served(folder, log)) as app:
        for size, status in ((3, 500), (2, 200)):
            inputs = [tensor("a", "FP32", [2], [1, 2]), tensor("b", "FP32", [size], [1.0] * size)]
            answer = await post(app, INFER, {"inputs": inputs})
            assert answer.status == status
            assert status == 200 or answer.json()["code"] == "failed"
        assert (await ask(app, "GET", "/v2/models/imported.model/ready")).status == 200
    assert "Attempting to broadcast" in log.getvalue()


async def test_values_without_a_form_in_json_are_binary_alone(tmp_path: Path, log: io.StringIO) -> None:
    x = tensor("x", "FP32", [1, 4], 16)
    head = json.dumps({"inputs": [x]}).encode()
    tail = np.full(4, np.nan, "float32").tobytes()
    async with started(served(write_imported(tmp_path / "imported"), log)) as app:
        answer = await ask(app, "POST", INFER, head + tail, inference_header_content_length=str(len(head)))
        assert (answer.status, answer.json()["code"]) == (422, "unprocessable")
        assert answer.json()["error"].endswith("ask for it as a binary tensor")


async def test_requests_to_graphs_have_the_limits_of_others(tmp_path: Path, log: io.StringIO) -> None:
    x = tensor("x", "FP32", [1, 4], [1, 2, 3, 4])
    async with started(served(write_imported(tmp_path / "imported"), log, queue=1, max_texts=1, max_body_kib=1)) as app:
        answers: list[Answer] = await asyncio.gather(*(post(app, INFER, {"inputs": [x]}) for _ in range(20)))
        assert {200, 429} == {answer.status for answer in answers}
        assert (await post(app, INFER, {"inputs": [x], "id": "x" * 1024})).status == 413


async def test_a_model_of_texts_has_no_graphs(app: Middleware) -> None:
    answer = await ask(app, "GET", "/v2/models/hotel.model")
    assert (answer.status, answer.json()["error"]) == (404, "unknown model; this server has hotel")


def test_an_item_may_be_the_inputs_of_a_graph(tmp_path: Path) -> None:
    predictor = Predictor(write_imported(tmp_path / "imported"))
    x = Tensor(np.ones((1, 4), "float32").tobytes(), (1, 4), "float32")
    [found], split = predictor.timed_batch([GraphInputs("model", {"x": x}, 1 << 20)])
    assert found.answer == found.as_json(with_scores=False) == {"y": [[3.0] * 4]}
    assert split.run_ms > 0
