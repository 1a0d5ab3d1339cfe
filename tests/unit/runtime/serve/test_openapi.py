"""The OpenAPI document fits the requests, answers and errors of the server."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from asgi import ask, post, started
from tiny_model import write_model_folder

from edgepack_runtime.bundle.model_config import ONE_TEXT, PAIR, TOKENS
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve.settings import Settings


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether `value` is what as much of JSON Schema as the description uses says."""
    if "$ref" in schema:
        found: Any = whole
        for part in schema["$ref"].lstrip("#/").split("/"):
            found = found[part]
        return fits(value, found, whole)
    if "oneOf" in schema:
        return sum(fits(value, one, whole) for one in schema["oneOf"]) == 1
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool}
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        if set(schema.get("required", ())) - set(value) or (rest is False and set(value) - set(known)):
            return False
        return all(fits(inner, known.get(key, rest or {}), whole) for key, inner in value.items())
    if isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        return least <= len(value) <= most and all(fits(inner, schema.get("items", {}), whole) for inner in value)
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return len(value) >= schema.get("minLength", 0)
    return schema.get("minimum", value) <= value <= schema.get("maximum", value)


@pytest.mark.parametrize(("task", "multi_label"), [(ONE_TEXT, False), (ONE_TEXT, True), (PAIR, False), (TOKENS, False)])
def test_requests_and_answers_fit_their_schemas(tmp_path: Path, task: str, multi_label: bool) -> None:
    folder = write_model_folder(tmp_path / "hotel", task=task, multi_label=multi_label)
    one = {"text": "店好", "text_pair": "差"} if task == PAIR else {"text": "店好"}
    several = {"texts": [["店好", "差"]] if task == PAIR else ["店好", "差"], "scores": True}

    async def main() -> None:
        app = application.application(Settings(model=folder), logging.getLogger("quiet"))
        async with started(app):
            whole = (await ask(app, "GET", "/openapi.json")).json()
            described = whole["paths"]["/predict"]["post"]
            asked = described["requestBody"]["content"]["application/json"]["schema"]
            answered = described["responses"]["200"]["content"]["application/json"]["schema"]
            for document in (one, several):
                assert fits(document, asked, whole)
                assert fits((await post(app, "/predict", document)).json(), answered, whole)
            refused = await post(app, "/predict", {"text": 3})
            assert not fits({"text": 3}, asked, whole)
            assert fits(refused.json(), {"$ref": "#/components/schemas/Error"}, whole)
            assert str(refused.status) in described["responses"]

    asyncio.run(main())


def test_every_route_is_described(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "hotel")

    async def main() -> None:
        app = application.application(Settings(model=folder), logging.getLogger("quiet"))
        async with started(app):
            whole = (await ask(app, "GET", "/openapi.json")).json()
            routes = application.Routes(None).table()  # type: ignore[arg-type]
            there = {route.path.replace("{name}", "hotel").replace("{version}", "0.0.0") for route in routes}
            assert there == set(whole["paths"])
            assert whole["openapi"].startswith("3.1")
            for path, methods in whole["paths"].items():
                for method in methods:
                    found = await ask(app, method.upper(), path, b"{", content_type="application/json")
                    assert found.status in (200, 400), path
                    assert re.match(r"application/json|text/(html|plain)", found.headers["content-type"])

    asyncio.run(main())


def test_a_token_is_told_of(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "hotel")
    settings = Settings(model=folder, token="0123456789abcdef")

    async def main() -> None:
        app = application.application(settings, logging.getLogger("quiet"))
        async with started(app):
            answer = await ask(app, "GET", "/openapi.json", authorization="Bearer 0123456789abcdef")
            assert answer.json()["security"] == [{"token": []}]
            for path, methods in answer.json()["paths"].items():
                open_to_all = methods.get("get", {}).get("security") == []
                assert ((await ask(app, "GET", path)).status != 401) == open_to_all, path

    asyncio.run(main())


def test_every_reference_resolves(tmp_path: Path) -> None:
    app = application.application(Settings(model=write_model_folder(tmp_path / "hotel")), logging.getLogger("quiet"))

    async def main() -> Any:
        async with started(app):
            return (await ask(app, "GET", "/openapi.json")).json()

    document = asyncio.run(main())
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references == set(document["components"]["schemas"])
