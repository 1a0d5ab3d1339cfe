"""OpenAPI 3.1 document of the HTTP interface for the loaded model."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from edgepack_runtime.bundle.model_config import CUSTOM, FILE, TEXT, TEXTS
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.serve.settings import Settings

Schema = Dict[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1}
_REFUSALS = {
    400: "The body is not JSON, or does not follow the protocol.",
    401: "The token is missing or wrong.",
    403: "A browser sent the request for a page of another origin.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is compressed.",
    422: "The model cannot process these texts.",
    429: "The queue is full; retry after the time in `Retry-After`.",
    500: "The model failed.",
    503: "The server is stopping.",
    504: "No answer in time.",
}


def document(facts: ModelInfo, settings: Settings, models: Sequence[str]) -> Schema:
    """The OpenAPI document. `models` are the names in paths of the Open Inference Protocol."""
    paths = {
        "/predict": {"post": _predict(facts, settings)},
        "/model": {"get": _read("Properties of the model.")},
        "/healthz": {"get": _read("The model does not hang.", open_to_all=True, unready=True)},
        "/readyz": {"get": _read("The server is ready for requests.", open_to_all=True, unready=True)},
        "/metrics": {"get": _read("Metrics in Prometheus' text format.", media="text/plain")},
        "/openapi.json": {"get": _read("This document.")},
        "/": {"get": _read("A page to try the model.", media="text/html", open_to_all=True)},
        "/docs": {"get": _read("A page to try this interface.", media="text/html", open_to_all=True)},
        "/v2": {"get": _read("Open Inference Protocol: the server.")},
        "/v2/health/live": {
            "get": _read("Open Inference Protocol: the server is alive.", open_to_all=True, unready=True)
        },
        "/v2/health/ready": {
            "get": _read("Open Inference Protocol: the server is ready for requests.", open_to_all=True, unready=True)
        },
    }
    for name in models:
        for model in (f"/v2/models/{name}", f"/v2/models/{name}/versions/{facts.version}"):
            paths[model] = {"get": _read("Open Inference Protocol: inputs and outputs of the model.")}
            paths[f"{model}/ready"] = {"get": _read("Open Inference Protocol: the model is ready.", unready=True)}
            paths[f"{model}/infer"] = {"post": _infer(name, facts)}
    components: Schema = {"schemas": {"Answer": _answer(facts), "Error": _error()}}
    found: Schema = {"openapi": "3.1.0", "info": {"title": facts.name, "version": facts.version}, "paths": paths}
    if settings.token is not None:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return {**found, "components": components}


def _predict(facts: ModelInfo, settings: Settings) -> Schema:
    if facts.task == CUSTOM and facts.item != TEXT:
        return _predict_item(facts, settings)
    pairs = facts.item == TEXTS
    scores: Schema = {"type": "boolean", "default": False, "description": "Scores of all labels."}
    entry: Schema = {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2} if pairs else _TEXT
    one: Schema = {"text": _TEXT, **({"text_pair": _TEXT} if pairs else {}), "scores": scores}
    texts = {"type": "array", "items": entry, "minItems": 1, "maxItems": settings.max_texts}
    asked = {
        "oneOf": [
            {**_object(one), "required": [name for name in one if name != "scores"]},
            {**_object({"texts": texts, "scores": scores}), "required": ["texts"]},
        ]
    }
    answer: Schema = {"$ref": "#/components/schemas/Answer"}
    several = {**_object({"predictions": {"type": "array", "items": answer}}), "required": ["predictions"]}
    answered = {"oneOf": [answer, several]}
    return _ask("Predictions for one or several texts.", asked, answered)


def _predict_item(facts: ModelInfo, settings: Settings) -> Schema:
    """A file is the body itself, or base64 in JSON; other items are JSON values."""
    name = FILE if facts.item == FILE else "item"
    one: Schema = {"type": "string", "contentEncoding": "base64"} if facts.item == FILE else {}
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": settings.max_texts}
    forms = [{**_object({key: schema}), "required": [key]} for key, schema in ((name, one), (f"{name}s", several))]
    answers = {**_object({"predictions": {"type": "array", "items": {}}}), "required": ["predictions"]}
    asked = _ask("The handler's answer for one or several items.", {"oneOf": forms}, {"anyOf": [{}, answers]})
    if facts.item == FILE:
        asked["requestBody"]["content"]["application/octet-stream"] = {"schema": {}}
    return asked


def _infer(name: str, facts: ModelInfo) -> Schema:
    tensor: Schema = {
        "type": "object",
        "required": ["name", "shape", "datatype", "data"],
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "datatype": {"type": "string"},
            "data": {"type": "array", "items": {}},
        },
    }
    asked: Schema = {
        "type": "object",
        "required": ["inputs"],
        "properties": {"inputs": {"type": "array", "items": tensor}},
    }
    named = {TEXT: ("text",), TEXTS: ("text", "text_pair")}.get(facts.item, ())
    if name == facts.name and named:
        tensors = [{"name": one, "shape": [1], "datatype": "BYTES", "data": ["房间很大"]} for one in named]
        asked["examples"] = [{"inputs": tensors}]
    answered = {
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {"outputs": {"type": "array", "items": tensor}},
    }
    return _ask(f"Open Inference Protocol: answers of {name}.", asked, answered)


def _ask(summary: str, asked: Schema, answered: Schema) -> Schema:
    timing = {"description": "Milliseconds of queue, tokenize, run and post, and the texts of the batch.", "schema": {}}
    good = {"description": "Answered.", "content": _content(answered), "headers": {"Server-Timing": timing}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _content(asked)},
        "responses": {"200": good, **{str(status): _refused(words) for status, words in _REFUSALS.items()}},
    }


def _read(summary: str, *, media: str = "application/json", open_to_all: bool = False, unready: bool = False) -> Schema:
    responses: Schema = {"200": {"description": summary, "content": {media: {"schema": {}}}}}
    if unready:
        responses["503"] = {"description": "Not now."}
    found: Schema = {"summary": summary, "responses": responses}
    return {**found, "security": []} if open_to_all else found


def _answer(facts: ModelInfo) -> Schema:
    if not facts.outputs:  # a handler's
        return {}
    keys = _object({output.name: dict(output.schema) for output in facts.outputs})
    return {**keys, "required": [output.name for output in facts.outputs if not output.is_extra]}


def _error() -> Schema:
    words = {name: {"type": "string"} for name in ("code", "message", "fix", "request_id")}
    error = {**_object(words), "required": ["code", "message", "request_id"]}
    return {**_object({"error": error}), "required": ["error"]}


def _refused(words: str) -> Schema:
    return {"description": words, "content": _content({"$ref": "#/components/schemas/Error"})}


def _content(schema: Optional[Schema]) -> Schema:
    return {"application/json": {"schema": schema}}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}
