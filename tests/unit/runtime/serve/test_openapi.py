"""The OpenAPI document fits the requests, answers and errors of the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.unit.runtime.serve.asgi import ask, post, started

from edgepack_runtime.serve import app as application
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.tasks.registry import NUMBER, NUMBER_OF_PAIR, ONE_TEXT, PAIR, TOKENS


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether `value` is what `schema` of the description `whole` says."""
    return Draft202012Validator({**schema, "components": whole["components"]}).is_valid(value)


@pytest.mark.parametrize(
    ("task", "multi_label"),
    [(ONE_TEXT, False), (ONE_TEXT, True), (PAIR, False), (TOKENS, False), (NUMBER, False), (NUMBER_OF_PAIR, False)],
)
async def test_requests_and_answers_fit_their_schemas(
    make_app: Callable[..., Middleware], task: str, multi_label: bool
) -> None:
    pairs = task in (PAIR, NUMBER_OF_PAIR)
    one = {"text": "店好", "text_pair": "差"} if pairs else {"text": "店好"}
    several = {"texts": [["店好", "差"]] if pairs else ["店好", "差"], "scores": True}
    labels = {"labels": ("value",)} if task in (NUMBER, NUMBER_OF_PAIR) else {}
    async with started(make_app(model={"task": task, "multi_label": multi_label, **labels})) as app:
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


async def test_the_document_describes_every_route_and_every_schema_that_it_names(app: Middleware) -> None:
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
    assert set(re.findall(r"#/components/schemas/(\w+)", str(whole))) == set(whole["components"]["schemas"])


async def test_the_document_tells_which_paths_want_a_token(make_app: Callable[..., Middleware]) -> None:
    async with started(make_app(token="0123456789abcdef")) as app:
        answer = await ask(app, "GET", "/openapi.json", authorization="Bearer 0123456789abcdef")
        assert answer.json()["security"] == [{"token": []}]
        for path, methods in answer.json()["paths"].items():
            open_to_all = methods.get("get", {}).get("security") == []
            assert ((await ask(app, "GET", path)).status != 401) == open_to_all, path
