"""The Open Inference Protocol, which KServe calls v2, over HTTP: one model, texts in, answers out.

Texts are `BYTES` tensors named `text`, and `text_pair` for pairs, of shape [n] or [n, 1]. What comes out depends on the
task; each is a tensor over the n texts:

    one label         label BYTES [n], score FP32 [n], scores FP32 [n, labels]
    several labels    labels BYTES [n], each a JSON list; scores FP32 [n, labels]
    spans             spans BYTES [n], each a JSON list

Tensors in binary form, an extension, are not taken.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.answers import AnyPrediction, LabelsPrediction, Prediction, SpansPrediction
from edgepack_runtime.model_config import PAIR, TOKENS
from edgepack_runtime.serve import asking, refusals
from edgepack_runtime.serve.facts import Facts
from edgepack_runtime.texts import Item

TEXT, TEXT_PAIR = "text", "text_pair"
_FORM = '{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["..."]}]}'
Tensor = Dict[str, Any]


class Inference(NamedTuple):
    """An inference request: what is asked, its own id, and the names of the tensors it wants (None: all)."""

    items: List[Item]
    id: Optional[str]
    outputs: Optional[Tuple[str, ...]]


def metadata(facts: Facts) -> Dict[str, Any]:
    """What `GET /v2/models/{name}` answers. `parameters` has the labels, in the order of `scores`."""
    return {
        "name": facts.name,
        "versions": [facts.version],
        "platform": f"onnx_{facts.engine.split()[0]}",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in _inputs(facts)],
        "outputs": _outputs(facts),
        "parameters": {"task": facts.task, "labels": list(facts.labels), "max_length": facts.max_length},
    }


def parse(document: Any, facts: Facts, *, max_texts: int) -> Inference:
    """Read an inference request.

    Raises:
        Refusal: 400 where it is not of the protocol's form, 422 where its texts cannot be asked.
    """
    if not isinstance(document, dict):
        raise refusals.malformed("the body is no JSON object", _FORM)
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise refusals.malformed("`id` is no text")
    names = _inputs(facts)
    columns = _columns(document.get("inputs"), names)
    if len({len(column) for column in columns}) != 1:
        raise refusals.malformed("`text` and `text_pair` do not have the same number of texts")
    pairs = len(names) == 2
    entries = [list(row) for row in zip(*columns)] if pairs else columns[0]
    if not entries:
        raise refusals.malformed("there is no text", _FORM)
    items = asking.checked(entries, pairs=pairs, max_texts=max_texts, form=_FORM)
    return Inference(items, identity, _wanted(document.get("outputs"), facts))


def response(inference: Inference, predictions: Sequence[AnyPrediction], facts: Facts) -> Dict[str, Any]:
    """What an inference request is answered."""
    tensors = [_tensor(entry, predictions, facts) for entry in _outputs(facts)]
    wanted = inference.outputs
    found: Dict[str, Any] = {
        "model_name": facts.name,
        "model_version": facts.version,
        "outputs": [tensor for tensor in tensors if wanted is None or tensor["name"] in wanted],
    }
    return found if inference.id is None else {**found, "id": inference.id}


def _inputs(facts: Facts) -> Tuple[str, ...]:
    return (TEXT, TEXT_PAIR) if facts.task == PAIR else (TEXT,)


def _outputs(facts: Facts) -> List[Tensor]:
    if facts.task == TOKENS:
        return [{"name": "spans", "datatype": "BYTES", "shape": [-1]}]
    scores = {"name": "scores", "datatype": "FP32", "shape": [-1, len(facts.labels)]}
    if facts.multi_label:
        return [{"name": "labels", "datatype": "BYTES", "shape": [-1]}, scores]
    label = {"name": "label", "datatype": "BYTES", "shape": [-1]}
    return [label, {"name": "score", "datatype": "FP32", "shape": [-1]}, scores]


def _columns(inputs: Any, names: Sequence[str]) -> List[List[Any]]:
    """The texts of each input that the model has, in its order."""
    if not isinstance(inputs, list):
        raise refusals.malformed("`inputs` is no list", _FORM)
    found: Dict[str, List[Any]] = {}
    for tensor in inputs:
        name = str(tensor.get("name")) if isinstance(tensor, dict) else ""
        if name not in names or name in found:
            raise refusals.malformed(f"the inputs of this model are {', '.join(names)}, each once", _FORM)
        found[name] = _data(tensor, name)
    missing = [name for name in names if name not in found]
    if missing:
        raise refusals.malformed(f"the input `{missing[0]}` is missing", _FORM)
    return [found[name] for name in names]


def _data(tensor: Mapping[str, Any], name: str) -> List[Any]:
    """The texts of a tensor, whose data may be flat or nested as its shape is."""
    if tensor.get("datatype") != "BYTES":
        raise refusals.malformed(f"the datatype of `{name}` is BYTES")
    data, shape = tensor.get("data"), tensor.get("shape")
    if not isinstance(data, list):
        raise refusals.malformed(f"`{name}` has no `data` in JSON; tensors in binary form are not taken", _FORM)
    fits = isinstance(shape, list) and 1 <= len(shape) <= 2 and all(type(size) is int for size in shape)
    if not fits or shape[1:] not in ([], [1]):  # type: ignore[index]
        raise refusals.malformed(f"the shape of `{name}` is [n] or [n, 1]")
    if data and all(isinstance(row, list) and len(row) == 1 for row in data):
        data = [row[0] for row in data]
    if shape != [len(data), *shape[1:]]:  # type: ignore[index]
        raise refusals.malformed(f"the shape of `{name}` is not that of its data")
    return data


def _wanted(outputs: Any, facts: Facts) -> Optional[Tuple[str, ...]]:
    if outputs is None or outputs == []:
        return None
    known = [tensor["name"] for tensor in _outputs(facts)]
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in outputs] if _is_list(outputs) else [0]
    if not all(name in known for name in names):
        raise refusals.malformed(f"the outputs of this model are {', '.join(known)}")
    return tuple(map(str, names))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _tensor(entry: Tensor, predictions: Sequence[AnyPrediction], facts: Facts) -> Tensor:
    name, count = entry["name"], len(predictions)
    rows = [_value(name, prediction, facts.labels) for prediction in predictions]
    if name == "scores":
        flat = [score for row in rows for score in row]
        return {**entry, "shape": [count, len(facts.labels)], "data": flat}
    return {**entry, "shape": [count], "data": rows}


def _value(name: str, prediction: AnyPrediction, labels: Sequence[str]) -> Any:
    """What `prediction` has for the output `name`: a text, a number, or the scores in the order of `labels`."""
    found = prediction.as_json(with_scores=not isinstance(prediction, SpansPrediction))
    if name == "scores":
        assert isinstance(prediction, (Prediction, LabelsPrediction))  # spans have no such output
        return [found["scores"][label] for label in labels]
    value = found[name]
    return value if name in ("label", "score") else json.dumps(value, ensure_ascii=False)
