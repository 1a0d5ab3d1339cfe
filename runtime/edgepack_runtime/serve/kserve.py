"""The Open Inference Protocol, which KServe calls v2, over HTTP: tensors in, tensors out.

The extension for binary tensors is supported in both directions: `Inference-Header-Content-Length` is the size of the
JSON in bytes, and the tensors' bytes follow in the order of their entries. Numbers are little-endian, in row-major
order. A text is its length in 4 bytes, little-endian, and UTF-8. Parameters of the protocol without a meaning for a
stateless model (`priority`, `timeout`, `sequence_id`) are accepted and ignored.
"""

from __future__ import annotations

import abc
import json
import math
import struct
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.serve import http_errors, requests
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.tasks.task import Prediction

HEADER_LENGTH = "Inference-Header-Content-Length"
Entry = Dict[str, Any]  # an input or output: its `name`, `datatype` and `shape`, in which -1 is any size
_FORMATS = {"FP32": "f", "INT64": "q"}  # of `struct`
_LENGTH = struct.Struct("<I")  # of a text, before its bytes
_MOST_AXES = 32


class Inference(NamedTuple):
    """An inference request: its items, its id, the outputs to return, and which of them are binary."""

    items: List[Any]
    id: Optional[str]
    outputs: Tuple[str, ...]
    binary: FrozenSet[str] = frozenset()


class InputTensor(NamedTuple):
    """An input of a request. `data` is a list, flat or nested, or the bytes of a binary tensor."""

    name: str
    shape: Tuple[int, ...]
    data: Union[List[Any], bytes]


class ServedModel(abc.ABC):
    """A model of the protocol, with its inputs and outputs.

    Args:
        name: in the model's path.
        facts: properties of the loaded model.
        parameters: further facts for its metadata.
    """

    def __init__(
        self,
        name: str,
        facts: ModelInfo,
        inputs: Sequence[Entry],
        outputs: Sequence[Entry],
        parameters: Mapping[str, Any],
    ) -> None:
        self.name, self.version = name, facts.version
        self._inputs = {entry["name"]: entry for entry in inputs}
        self._outputs = {entry["name"]: entry for entry in outputs}
        self._platform = f"{facts.engine.split()[0]}_onnx" if facts.providers else "edgepack_linear"
        self._parameters = parameters

    @abc.abstractmethod
    def items(self, inputs: Sequence[InputTensor]) -> List[Any]:
        """The predictor's items, from all inputs in the model's order.

        Raises:
            HttpError: 400 if a tensor does not follow the protocol, 422 if the model cannot process it.
        """

    @abc.abstractmethod
    def values(self, output: str, predictions: Sequence[Prediction]) -> Union[Tensor, List[Any]]:
        """The values of an output: a tensor, or a flat list with the `predictions` as first axis."""

    def metadata(self) -> Dict[str, Any]:
        """The response of `GET /v2/models/{name}`."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": self._platform,
            "inputs": list(self._inputs.values()),
            "outputs": list(self._outputs.values()),
            "parameters": self._parameters,
        }

    @property
    def form(self) -> str:
        """The form of a request, for messages."""
        shapes = [[abs(size) for size in entry["shape"]] for entry in self._inputs.values()]
        entries = zip(self._inputs.values(), shapes)
        return json.dumps({"inputs": [{**entry, "shape": shape, "data": ["..."]} for entry, shape in entries]})

    def parse(self, document: Any, tail: bytes = b"") -> Inference:
        """Parse an inference request; `tail` is the body after the JSON.

        Raises:
            HttpError: as `items`.
        """
        if not isinstance(document, dict):
            raise http_errors.malformed("the body is not a JSON object", self.form)
        identity = document.get("id")
        if identity is not None and not isinstance(identity, str):
            raise http_errors.malformed("`id` is not a text")
        items = self.items(self._read_inputs(document.get("inputs"), tail))
        outputs = self._requested_outputs(document)
        return Inference(items, identity, tuple(outputs), frozenset(name for name in outputs if outputs[name]))

    def response(self, inference: Inference, predictions: Sequence[Prediction]) -> Tuple[Dict[str, Any], bytes]:
        """The JSON of the response, and the bytes of its binary tensors (empty if all tensors are JSON).

        Raises:
            HttpError: 422 if JSON has no form for a value, or the outputs are too large.
        """
        entries, tail = [], []
        outputs = {name: self.values(name, predictions) for name in inference.outputs}
        _require_few_elements([values for name, values in outputs.items() if name not in inference.binary])
        for name, values in outputs.items():
            entry = dict(self._outputs[name])
            data: Union[Sequence[Any], bytes]
            if isinstance(values, Tensor):
                entry["shape"] = list(values.shape)
                data = values.data if name in inference.binary else _flat(name, values)
            else:
                entry["shape"] = [len(predictions), *entry["shape"][1:]]
                data = _as_bytes(entry["datatype"], values) if name in inference.binary else values
            if isinstance(data, bytes):
                entry["parameters"] = {"binary_data_size": len(data)}
                tail.append(data)
            else:
                entry["data"] = data
            entries.append(entry)
        found: Dict[str, Any] = {"model_name": self.name, "model_version": self.version, "outputs": entries}
        return (found if inference.id is None else {**found, "id": inference.id}), b"".join(tail)

    def _read_inputs(self, inputs: Any, tail: bytes) -> List[InputTensor]:
        """All inputs of the model, in its order."""
        if not isinstance(inputs, list):
            raise http_errors.malformed("`inputs` is not a list", self.form)
        found: Dict[str, InputTensor] = {}
        for tensor in inputs:
            name = str(tensor.get("name")) if isinstance(tensor, dict) else ""
            if name not in self._inputs or name in found:
                known = ", ".join(self._inputs)
                raise http_errors.malformed(f"the inputs of this model are {known}, each once", self.form)
            datatype, shape, data = self._inputs[name]["datatype"], tensor.get("shape"), tensor.get("data")
            if tensor.get("datatype") != datatype:
                raise http_errors.malformed(f"the datatype of `{name}` is {datatype}")
            if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(map(_is_size, shape)):
                raise http_errors.malformed(f"the shape of `{name}` is not a list of sizes")
            size = _parameters(tensor, name).get("binary_data_size")
            if size is not None:
                if type(size) is not int or not 0 <= size <= len(tail) or "data" in tensor:
                    raise http_errors.malformed(
                        f"`binary_data_size` of `{name}` does not match the bytes after the JSON"
                    )
                data, tail = tail[:size], tail[size:]
            elif not isinstance(data, list):
                raise http_errors.malformed(f"`{name}` has no list `data` and no `binary_data_size`", self.form)
            found[name] = InputTensor(name, tuple(shape), data)
        missing = [name for name in self._inputs if name not in found]
        if missing:
            raise http_errors.malformed(f"the input `{missing[0]}` is missing", self.form)
        if tail:
            raise http_errors.malformed(f"{len(tail)} bytes after the JSON belong to no input")
        return [found[name] for name in self._inputs]

    def _requested_outputs(self, document: Mapping[str, Any]) -> Dict[str, bool]:
        """The names of the requested outputs in their order, each with whether it is binary."""
        binary = _flag(_parameters(document, "the request"), "binary_data_output", default=False)
        entries = document.get("outputs") or [{"name": name} for name in self._outputs]
        found: Dict[str, bool] = {}
        for entry in entries if isinstance(entries, list) else [entries]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or name not in self._outputs or name in found:
                known = ", ".join(self._outputs)
                raise http_errors.malformed(f"the outputs of this model are {known}, each once")
            parameters = _parameters(entry, name)
            if "classification" in parameters:
                message = "the classification extension is not supported"
                raise http_errors.malformed(message, "ask for the scores themselves")
            found[name] = _flag(parameters, "binary_data", default=binary)
        return found


def unpack_texts(tensor: InputTensor, raw: bytes, count: int) -> List[bytes]:
    """The elements of a binary tensor of BYTES, not more than the `count` of its shape.

    Raises:
        HttpError: `raw` ends within an element, or holds more (400).
    """
    found: List[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(raw) and len(found) < count:
        end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
        if end > len(raw):
            break
        found.append(raw[at + _LENGTH.size : end])
        at = end
    if at != len(raw):
        if len(found) == count:
            raise mismatch(tensor)
        raise http_errors.malformed(f"the bytes of `{tensor.name}` end within an element")
    return found


def mismatch(tensor: InputTensor) -> HttpError:
    """400: a tensor has more or fewer elements than its shape says."""
    return http_errors.malformed(f"the shape of `{tensor.name}` does not match its data")


def _as_bytes(datatype: str, values: Sequence[Any]) -> bytes:
    """The values of an output, BYTES, FP32 or INT64, in binary form."""
    if datatype in _FORMATS:
        return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    # A lone surrogate, which JSON may contain, is returned as a JSON escape.
    texts = [text.encode("utf-8", "backslashreplace") for text in values]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def _require_few_elements(outputs: Sequence[Union[Tensor, List[Any]]]) -> None:
    """All other requests wait while a response is written as JSON."""
    sizes = (math.prod(values.shape) if isinstance(values, Tensor) else len(values) for values in outputs)
    if sum(sizes) > requests.MOST_VALUES:
        message = f"the outputs have more than {requests.MOST_VALUES} values, too many for JSON"
        raise http_errors.unfit(message, "ask for it as a binary tensor")


def _flat(name: str, tensor: Tensor) -> Sequence[Any]:
    """The elements of an output, for JSON."""
    found = tensor.flat()
    if not all(map(math.isfinite, found)):
        message = f"the output `{name}` has values that are not finite, for which JSON has no form"
        raise http_errors.unfit(message, "ask for it as a binary tensor")
    return found


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size < 2**63


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
