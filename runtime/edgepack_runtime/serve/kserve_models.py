"""The models that the Open Inference Protocol names: the loaded model, and each graph of one with a handler.

The loaded model reads texts as `BYTES` tensors named `text`, and `text_pair` for pairs, of shape [n] or [n, 1]. It has
an output over the n texts for each key of an answer: BYTES [n] for a text, and for other JSON values as JSON; FP32 [n]
for a number, INT64 [n] for a whole one; FP32 [n, labels] for a number of each label. A handler's is `answer`, BYTES
[n], as JSON.

A handler of JSON values reads `item` BYTES, each a JSON text; one of files reads `file` BYTES, in base64 or binary.

The graph `detect` of the model `ocr` is the model `ocr.detect`. Its inputs and outputs are the graph's own.
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from edgepack_runtime.bundle.model_config import FILE, JSON, TEXT, TEXTS
from edgepack_runtime.engine import tensors
from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.inference.loaded_model import GraphInputs, TensorsPrediction
from edgepack_runtime.serve import http_errors, requests
from edgepack_runtime.serve.kserve import Entry, InputTensor, ServedModel, mismatch, unpack_texts
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.tasks.task import Output, Prediction

if TYPE_CHECKING:
    from edgepack_runtime.engine.graphs import Graph
    from edgepack_runtime.engine.ort_api import TensorInfo

TEXT_PAIR = "text_pair"
_DATATYPES: Mapping[Any, str] = {"number": "FP32", "integer": "INT64"}  # of values that are no text and no JSON
# Product of the other axes of a tensor without elements: a request of a few bytes must not decide about gigabytes.
_MOST_OF_EMPTY = 1 << 16
_MOST_OUTPUT_BYTES = 1 << 26  # of all outputs of a graph


def models(facts: ModelInfo, graphs: Mapping[str, Graph], *, max_texts: int) -> Dict[str, ServedModel]:
    """All models by name."""
    found: List[ServedModel] = [ItemModel(facts, max_texts=max_texts)]
    found += [GraphModel(facts, name, graph.inputs, graph.outputs) for name, graph in graphs.items()]
    return {model.name: model for model in found}


class ItemModel(ServedModel):
    """The loaded model. `parameters` of its metadata has the labels, in the order of `scores`.

    Args:
        max_texts: maximum number of items of a request.
    """

    def __init__(self, facts: ModelInfo, *, max_texts: int) -> None:
        names = {TEXTS: (TEXT, TEXT_PAIR), JSON: ("item",), FILE: ("file",)}.get(facts.item, (TEXT,))
        parameters = {"task": facts.task, "labels": list(facts.labels), "max_length": facts.max_length}
        super().__init__(facts.name, facts, list(map(_bytes, names)), _outputs(facts), parameters)
        self._outputs_by_name = {output.name: output for output in facts.outputs}
        self._facts, self._max_texts = facts, max_texts

    def items(self, inputs: Sequence[InputTensor]) -> List[Any]:
        columns, item = [_elements(one, self._max_texts) for one in inputs], self._facts.item
        if len({len(column) for column in columns}) != 1:
            raise http_errors.malformed("`text` and `text_pair` do not have the same number of texts")
        if not columns[0]:
            raise http_errors.malformed(f"there is no {inputs[0].name}", self.form)
        if item in (JSON, FILE):
            return _values(columns[0], item, self._max_texts)
        entries = [list(row) for row in zip(*columns)] if item == TEXTS else columns[0]
        return requests.checked(entries, pairs=item == TEXTS, max_texts=self._max_texts, form=self.form)

    def values(self, output: str, predictions: Sequence[Prediction]) -> List[Any]:
        found = [prediction.as_json(with_scores=True) for prediction in predictions]
        known = self._outputs_by_name.get(output)
        if known is None:  # the only one of a handler
            return [json.dumps(answer, ensure_ascii=False) for answer in found]
        values = [answer[output] for answer in found]
        if known.by_label:
            return [value[label] for value in values for label in self._facts.labels]
        return [value if _is_plain(known) else json.dumps(value, ensure_ascii=False) for value in values]


class GraphModel(ServedModel):
    """A graph of a model with a handler. The handler is not called.

    Args:
        inputs, outputs: of the graph.
    """

    def __init__(
        self, facts: ModelInfo, graph: str, inputs: Mapping[str, TensorInfo], outputs: Mapping[str, TensorInfo]
    ) -> None:
        super().__init__(f"{facts.name}.{graph}", facts, _declared(inputs), _declared(outputs), {})
        self._graph, self._infos = graph, inputs

    def items(self, inputs: Sequence[InputTensor]) -> List[Any]:
        tensors_by_name = {given.name: _tensor(given, self._infos[given.name]) for given in inputs}
        return [GraphInputs(self._graph, tensors_by_name, _MOST_OUTPUT_BYTES)]

    def values(self, output: str, predictions: Sequence[Prediction]) -> Tensor:
        [prediction] = predictions
        assert isinstance(prediction, TensorsPrediction)  # of `GraphInputs`
        return prediction.tensors[output]


def _bytes(name: str) -> Entry:
    return {"name": name, "datatype": "BYTES", "shape": [-1]}


def _outputs(facts: ModelInfo) -> List[Entry]:
    return [_entry(output, len(facts.labels)) for output in facts.outputs] or [_bytes("answer")]


def _entry(output: Output, n_labels: int) -> Entry:
    if output.by_label:
        return {"name": output.name, "datatype": "FP32", "shape": [-1, n_labels]}
    return {"name": output.name, "datatype": _DATATYPES.get(output.schema.get("type"), "BYTES"), "shape": [-1]}


def _is_plain(output: Output) -> bool:
    return output.schema.get("type") in ("string", *_DATATYPES)


def _elements(tensor: InputTensor, most: int) -> List[Any]:
    """The elements of a BYTES tensor, at most `most`: texts; bytes if it is a binary tensor of files."""
    name, shape, data = tensor
    if shape[1:] not in ((), (1,)) or not shape:
        raise http_errors.malformed(f"the shape of `{name}` is [n] or [n, 1]")
    requests.require_few(shape[0], most)  # before anything is unpacked: all other requests wait for that
    raw = unpack_texts(tensor, data, shape[0]) if isinstance(data, bytes) else data
    if shape[0] != len(raw):
        raise mismatch(tensor)
    if isinstance(data, bytes):
        return list(raw) if name == FILE else [_decoded(element, name) for element in raw]
    if len(shape) == 2 and all(isinstance(row, list) and len(row) == 1 for row in data):
        return [row[0] for row in data]
    return data


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise http_errors.malformed(f"an element of `{name}` is not UTF-8") from None


def _values(entries: Sequence[Any], item: str, max_texts: int) -> List[Any]:
    """The items of a model with a handler: from JSON or base64 in texts, or the bytes of a binary tensor."""
    if item == FILE and any(isinstance(entry, bytes) for entry in entries):
        entries = [base64.b64encode(entry).decode() for entry in entries]
    if item == JSON:
        entries = requests.parse_each([entry if isinstance(entry, bytes) else _utf8(entry) for entry in entries])
    form = "elements of `file` are base64" if item == FILE else "elements of `item` are JSON, and not null"
    return requests.values(entries, item, max_texts=max_texts, form=form)


def _utf8(entry: Any) -> bytes:
    if not isinstance(entry, str):
        raise http_errors.malformed("an element of a BYTES tensor is not a text")
    return entry.encode("utf-8", "surrogatepass")


def _declared(infos: Mapping[str, TensorInfo]) -> List[Entry]:
    """Entries of a graph's inputs or outputs; FP32 is the protocol's name of float32, INT64 of int64."""
    return [
        {"name": name, "datatype": info.dtype.upper().replace("FLOAT", "FP"), "shape": list(info.shape)}
        for name, info in infos.items()
    ]


def _tensor(given: InputTensor, declared: TensorInfo) -> Tensor:
    """An input of a graph.

    ONNX Runtime declares an input of any number of axes as one without axes, so that the run checks their number.
    """
    name, shape, data = given
    sizes, dtype = declared
    if sizes and (len(shape) != len(sizes) or any(size not in (-1, got) for size, got in zip(sizes, shape))):
        raise http_errors.malformed(f"the shape of `{name}` is {list(sizes)}, where -1 is any size")
    if 0 in shape and math.prod(filter(None, shape)) > _MOST_OF_EMPTY:
        raise http_errors.malformed(f"`{name}` holds nothing, and its shape is a large one")
    if isinstance(data, bytes):
        fits = len(data) == tensors.size_bytes(shape, dtype)
        if dtype == "bool" and set(data) - {0, 1}:
            raise http_errors.malformed(f"the bytes of `{name}` are not all 0 or 1")
        found = Tensor(data, shape, dtype)
    else:
        try:
            found = tensors.from_lists(data, dtype)
        except ValueError as error:
            raise http_errors.malformed(f"`{name}` cannot be read: {error}") from None
        count = math.prod(shape)
        fits = found.shape in ((count,), shape) or math.prod(found.shape) == count == 0
    if not fits:
        raise http_errors.malformed(f"the shape of `{name}` does not match its data")
    return Tensor(found.data, shape, dtype)
