"""The Open Inference Protocol, which KServe calls v2, over HTTP: one model, texts in, answers out.

Texts are `BYTES` tensors named `text`, and `text_pair` for pairs, of shape [n] or [n, 1]. The outputs depend on the
task; each is a tensor over the n texts:

    one label         label BYTES [n], score FP32 [n], scores FP32 [n, labels]
    several labels    labels BYTES [n], each a JSON list; scores FP32 [n, labels]
    spans             spans BYTES [n], each a JSON list
    an adapter        answer BYTES [n], each a JSON value

An adapter of JSON values reads `item` BYTES, each a JSON text; one of files reads `file` BYTES, in base64 or binary.

The extension for binary tensors is supported in both directions: `Inference-Header-Content-Length` is the size of the
JSON in bytes, and the tensors' bytes follow in the order of their entries. A text is its length in 4 bytes,
little-endian, and UTF-8. Parameters of the protocol without a meaning for a stateless model (`priority`, `timeout`,
`sequence_id`) are accepted and ignored.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.bundle.model_config import CUSTOM, FILE, JSON, TEXT, TEXTS, TOKENS
from edgepack_runtime.inference.predictions import (
    AnyPrediction,
    JsonPrediction,
    LabelsPrediction,
    Prediction,
    SpansPrediction,
)
from edgepack_runtime.serve import http_errors, requests
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.util.texts import Item

TEXT_PAIR = "text_pair"
_FORM = '{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["..."]}]}'
Tensor = Dict[str, Any]
_LENGTH = struct.Struct("<I")  # of a text, before its bytes
HEADER_LENGTH = "Inference-Header-Content-Length"


class Inference(NamedTuple):
    """An inference request: its items, its id, the outputs to return, and which of them are binary."""

    items: List[Item]
    id: Optional[str]
    outputs: Tuple[str, ...]
    binary: FrozenSet[str] = frozenset()


def metadata(facts: ModelInfo) -> Dict[str, Any]:
    """The response of `GET /v2/models/{name}`. `parameters` has the labels, in the order of `scores`."""
    return {
        "name": facts.name,
        "versions": [facts.version],
        "platform": f"{facts.engine.split()[0]}_onnx" if facts.providers else "edgepack_linear",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in _inputs(facts)],
        "outputs": _outputs(facts),
        "parameters": {"task": facts.task, "labels": list(facts.labels), "max_length": facts.max_length},
    }


def parse(document: Any, facts: ModelInfo, *, max_texts: int, tail: bytes = b"") -> Inference:
    """Parse an inference request; `tail` is the body after the JSON.

    Raises:
        HttpError: 400 if it does not follow the protocol, 422 if the model cannot process its texts.
    """
    if not isinstance(document, dict):
        raise http_errors.malformed("the body is not a JSON object", _FORM)
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise http_errors.malformed("`id` is not a text")
    names = _inputs(facts)
    columns = _columns(document.get("inputs"), names, tail)
    if facts.item in (JSON, FILE):
        if not columns[0]:
            raise http_errors.malformed(f"there is no {names[0]}", _FORM.replace('"text"', f'"{names[0]}"'))
        return Inference(_values(columns[0], facts.item, max_texts), identity, *_outputs_of(document, facts))
    if len({len(column) for column in columns}) != 1:
        raise http_errors.malformed("`text` and `text_pair` do not have the same number of texts")
    pairs = len(names) == 2
    entries = [list(row) for row in zip(*columns)] if pairs else columns[0]
    if not entries:
        raise http_errors.malformed("there is no text", _FORM)
    items = requests.checked(entries, pairs=pairs, max_texts=max_texts, form=_FORM)
    return Inference(items, identity, *_outputs_of(document, facts))


def _outputs_of(document: Mapping[str, Any], facts: ModelInfo) -> Tuple[Tuple[str, ...], FrozenSet[str]]:
    """The outputs to return, and those of them that are binary."""
    outputs = _requested_outputs(document, facts)
    return tuple(outputs), frozenset(name for name, binary in outputs.items() if binary)


def _values(entries: Sequence[Any], item: str, max_texts: int) -> List[Any]:
    """The items of a model with an adapter: from JSON or base64 in texts, or the bytes of a binary tensor."""
    if item == FILE and any(isinstance(entry, bytes) for entry in entries):
        entries = [base64.b64encode(entry).decode() for entry in entries]
    if item == JSON:
        entries = [requests.parse_json(entry if isinstance(entry, bytes) else _utf8(entry)) for entry in entries]
    form = "elements of `file` are base64" if item == FILE else "elements of `item` are JSON, and not null"
    return requests.values(entries, item, max_texts=max_texts, form=form)


def _utf8(entry: Any) -> bytes:
    if not isinstance(entry, str):
        raise http_errors.malformed("an element of a BYTES tensor is not a text")
    return entry.encode("utf-8", "surrogatepass")


def response(
    inference: Inference, predictions: Sequence[AnyPrediction], facts: ModelInfo
) -> Tuple[Dict[str, Any], bytes]:
    """The JSON of the response, and the bytes of its binary tensors (empty if all tensors are JSON)."""
    entries = {entry["name"]: entry for entry in _outputs(facts)}
    tensors, tail = [], []
    for name in inference.outputs:
        tensor = _tensor(entries[name], predictions, facts)
        if name in inference.binary:
            raw = _as_bytes(tensor["datatype"], tensor.pop("data"))
            tensor["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        tensors.append(tensor)
    found: Dict[str, Any] = {"model_name": facts.name, "model_version": facts.version, "outputs": tensors}
    return (found if inference.id is None else {**found, "id": inference.id}), b"".join(tail)


def _inputs(facts: ModelInfo) -> Tuple[str, ...]:
    return {TEXTS: (TEXT, TEXT_PAIR), JSON: ("item",), FILE: ("file",)}.get(facts.item, (TEXT,))


def _outputs(facts: ModelInfo) -> List[Tensor]:
    if facts.task == CUSTOM:
        return [{"name": "answer", "datatype": "BYTES", "shape": [-1]}]
    if facts.task == TOKENS:
        return [{"name": "spans", "datatype": "BYTES", "shape": [-1]}]
    scores = {"name": "scores", "datatype": "FP32", "shape": [-1, len(facts.labels)]}
    if facts.multi_label:
        return [{"name": "labels", "datatype": "BYTES", "shape": [-1]}, scores]
    label = {"name": "label", "datatype": "BYTES", "shape": [-1]}
    return [label, {"name": "score", "datatype": "FP32", "shape": [-1]}, scores]


def _columns(inputs: Any, names: Sequence[str], tail: bytes) -> List[List[Any]]:
    """The texts of each input of the model, in the model's order."""
    if not isinstance(inputs, list):
        raise http_errors.malformed("`inputs` is not a list", _FORM)
    found: Dict[str, List[Any]] = {}
    for tensor in inputs:
        name = str(tensor.get("name")) if isinstance(tensor, dict) else ""
        if name not in names or name in found:
            raise http_errors.malformed(f"the inputs of this model are {', '.join(names)}, each once", _FORM)
        if tensor.get("datatype") != "BYTES":
            raise http_errors.malformed(f"the datatype of `{name}` is BYTES")
        count, nested = _count(tensor.get("shape"), name)
        size = _parameters(tensor, name).get("binary_data_size")
        if size is None:
            found[name] = _from_json(tensor.get("data"), count, nested, name)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) or "data" in tensor:
            raise http_errors.malformed(f"`binary_data_size` of `{name}` does not match the bytes after the JSON")
        elements, tail = _elements(tail[:size], count, name), tail[size:]
        found[name] = list(elements) if name == FILE else [_decoded(raw, name) for raw in elements]
    missing = [name for name in names if name not in found]
    if missing:
        raise http_errors.malformed(f"the input `{missing[0]}` is missing", _FORM)
    if tail:
        raise http_errors.malformed(f"{len(tail)} bytes after the JSON belong to no input")
    return [found[name] for name in names]


def _count(shape: Any, name: str) -> Tuple[int, bool]:
    """Number of texts of a tensor of `shape`, and whether the shape is [n, 1]."""
    fits = isinstance(shape, list) and 1 <= len(shape) <= 2 and all(type(size) is int for size in shape)
    if not fits or shape[1:] not in ([], [1]):
        raise http_errors.malformed(f"the shape of `{name}` is [n] or [n, 1]")
    return shape[0], len(shape) == 2


def _from_json(data: Any, count: int, nested: bool, name: str) -> List[Any]:
    """The texts of `data`, flat or nested according to its shape."""
    if not isinstance(data, list):
        raise http_errors.malformed(f"`{name}` has no list `data` and no `binary_data_size`", _FORM)
    if nested and data and all(isinstance(row, list) and len(row) == 1 for row in data):
        data = [row[0] for row in data]
    if count != len(data):
        raise http_errors.malformed(f"the shape of `{name}` does not match its data")
    return list(data)


def _elements(raw: bytes, count: int, name: str) -> List[bytes]:
    """The elements of a binary tensor."""
    found: List[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(raw):
        end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
        if end > len(raw):
            break
        found.append(raw[at + _LENGTH.size : end])
        at = end
    if at != len(raw):
        raise http_errors.malformed(f"the bytes of `{name}` end within an element")
    if count != len(found):
        raise http_errors.malformed(f"the shape of `{name}` does not match its data")
    return found


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise http_errors.malformed(f"an element of `{name}` is not UTF-8") from None


def _as_bytes(datatype: str, data: Sequence[Any]) -> bytes:
    """The values of an output tensor, BYTES or FP32, in binary form."""
    if datatype == "FP32":
        return struct.pack(f"<{len(data)}f", *data)
    # A lone surrogate, which JSON may contain, is returned as a JSON escape.
    texts = [text.encode("utf-8", "backslashreplace") for text in data]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def _requested_outputs(document: Mapping[str, Any], facts: ModelInfo) -> Dict[str, bool]:
    """The names of the requested outputs in their order, each with whether it is binary."""
    known = [tensor["name"] for tensor in _outputs(facts)]
    binary = _flag(_parameters(document, "the request"), "binary_data_output", default=False)
    entries = document.get("outputs") or [{"name": name} for name in known]
    found: Dict[str, bool] = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        name = entry.get("name") if isinstance(entry, dict) else None
        if name not in known or name in found:
            raise http_errors.malformed(f"the outputs of this model are {', '.join(known)}, each once")
        parameters = _parameters(entry, str(name))
        if "classification" in parameters:
            raise http_errors.malformed("the classification extension is not supported", "ask for the output `scores`")
        found[str(name)] = _flag(parameters, "binary_data", default=binary)
    return found


def _parameters(entry: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    found = entry.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise http_errors.malformed(f"`parameters` of {owner} is not a JSON object")
    return found


def _flag(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise http_errors.malformed(f"`{name}` is true or false")
    return value


def _tensor(entry: Tensor, predictions: Sequence[AnyPrediction], facts: ModelInfo) -> Tensor:
    name, count = entry["name"], len(predictions)
    rows = [_value(name, prediction, facts.labels) for prediction in predictions]
    if name == "scores":
        flat = [score for row in rows for score in row]
        return {**entry, "shape": [count, len(facts.labels)], "data": flat}
    return {**entry, "shape": [count], "data": rows}


def _value(name: str, prediction: AnyPrediction, labels: Sequence[str]) -> Any:
    """The value of the output `name` in `prediction`: a text, a number, or the scores in the order of `labels`."""
    if isinstance(prediction, JsonPrediction):
        return json.dumps(prediction.answer, ensure_ascii=False)
    found = prediction.as_json(with_scores=not isinstance(prediction, SpansPrediction))
    if name == "scores":
        assert isinstance(prediction, (Prediction, LabelsPrediction))  # spans have no scores
        return [found["scores"][label] for label in labels]
    value = found[name]
    return value if name in ("label", "score") else json.dumps(value, ensure_ascii=False)
