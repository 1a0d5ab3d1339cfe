"""HTTP for models with a handler: files, JSON values and texts."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import HANDLER, write_imported
from tests.unit.runtime.serve.asgi import Answer, Held, ask, post, started

from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import logs, requests
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.settings import Settings

INFER = "/v2/models/imported/infer"


def served(folder: Path, item: str, log: io.StringIO, *, handler: str | None = None, **changes: Any) -> Middleware:
    settings = Settings(model=write_imported(folder / "imported", item=item, handler=handler), **changes)
    return application.application(settings, logs.configure("debug", log))


def in_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def packed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


async def test_a_file_is_the_body_or_base64(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "file", log)) as app:
        for kind in ("application/octet-stream", "image/png", ""):
            answer = await ask(app, "POST", "/predict", b"\0\xff{", content_type=kind)
            assert (answer.status, answer.json()) == (200, 7.0)
            assert "run;dur=" in answer.headers["server-timing"]
        assert (await post(app, "/predict", {"file": in_base64(b"ab")})).json() == 5.0
        several = {"files": [in_base64(b""), in_base64(b"abc")]}
        assert (await post(app, "/predict", several)).json() == {"predictions": [1.0, 7.0]}


@pytest.mark.parametrize(
    ("kind", "body", "status", "words"),
    [
        ("multipart/form-data; boundary=x", b"--x", 415, "the body is a form"),
        ("image/png", b"", 422, "the body is empty"),
        ("application/json", b"{", 400, "not JSON"),
        ("application/json; charset=utf-8", b"[]", 422, "`file` or `files`"),
        ("application/json", b'{"item": "YQ=="}', 422, "`file` or `files`"),
        ("application/json", b'{"file": "YQ==", "files": []}', 422, "`file` or `files`"),
        ("application/json", b'{"file": "not base64"}', 422, "file 1 is not base64"),
        ("application/json", b'{"file": 3}', 422, "file 1 is not base64"),
        ("application/json", b'{"file": null}', 422, "item 1 is null"),
        ("application/json", b'{"files": []}', 422, "at least one item"),
        ("application/json", b'{"files": "YQ=="}', 422, "at least one item"),
        ("application/json", b'{"files": ["YQ==", "YQ==", "YQ=="]}', 422, "3 texts are more than 2"),
    ],
)
async def test_a_body_that_is_no_file_is_refused(
    tmp_path: Path, log: io.StringIO, kind: str, body: bytes, status: int, words: str
) -> None:
    async with started(served(tmp_path, "file", log, max_texts=2)) as app:
        answer = await ask(app, "POST", "/predict", body, content_type=kind)
        assert answer.status == status
        assert words in answer.json()["error"]["message"]


async def test_files_may_be_larger_than_texts_and_not_endless(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "file", log)) as app:
        large = bytes(200 * 1024)
        assert (await ask(app, "POST", "/predict", large)).json() == 2.0 * len(large) + 1
        assert (await ask(app, "GET", "/model")).json()["limits"]["max_body_kib"] == 16_384
        answer = await ask(app, "POST", "/predict", bytes(2**24 + 1))
        assert (answer.status, answer.json()["error"]["code"]) == (413, "too_large")
    async with started(served(tmp_path / "small", "file", log, max_body_kib=1)) as app:
        assert (await ask(app, "POST", "/predict", bytes(1024))).status == 200
        assert (await ask(app, "POST", "/predict", bytes(1025))).status == 413


@pytest.mark.parametrize("path", ["/predict", INFER])
async def test_bodies_that_wait_for_an_answer_have_a_limit_together(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch, held: Held, path: str
) -> None:
    monkeypatch.setattr(requests, "_MOST_HELD", 0)
    file = in_base64(bytes(600))
    tensor = {"name": "file", "shape": [1], "datatype": "BYTES", "data": [file]}
    body = {"file": file} if path == "/predict" else {"inputs": [tensor]}
    async with started(served(tmp_path, "file", log, max_body_kib=1)) as app:
        first = [asyncio.ensure_future(post(app, path, body)) for _ in range(2)]  # two have room in any case
        await held.wait_for_one()
        while requests._held < 2 * len(file):
            await asyncio.sleep(0.001)
        third = await post(app, path, body)
        assert (third.status, third.headers["retry-after"]) == (503, "1")
        assert b"wait for an answer" in third.body
        held.go_on.set()
        assert [(await one).status for one in first] == [200, 200]
        assert (await post(app, path, body)).status == 200
        assert (await post(app, path, {"inputs": 1})).status in (400, 422)
    assert requests._held == 0


async def test_answers_that_no_client_takes_have_a_limit_together(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_MOST_HELD", 0)
    runs, answer = [], Predictor.timed_batch

    def timed_batch(self: Predictor, items: Any, wanted: Any) -> Any:
        runs.append(items)
        return answer(self, items, wanted)

    monkeypatch.setattr(Predictor, "timed_batch", timed_batch)
    tensor = {"name": "x", "shape": [40, 4], "datatype": "FP32", "parameters": {"binary_data_size": 640}}

    def infer(app: Middleware, takes: asyncio.Event, *, binary: bool = True) -> asyncio.Future[Answer]:
        document = {"inputs": [tensor], "parameters": {"binary_data_output": binary}}
        head, path = json.dumps(document).encode(), "/v2/models/imported.model/infer"
        body, length = head + struct.pack("<160f", *[1 / 3] * 160), {"inference_header_content_length": str(len(head))}
        return asyncio.ensure_future(ask(app, "POST", path, body, takes=takes, **length))

    async with started(served(tmp_path, "json", log, max_body_kib=1)) as app:
        takes, at_once = asyncio.Event(), asyncio.Event()
        at_once.set()
        alone = await infer(app, at_once, binary=False)  # an answer of any size has room
        assert (alone.status, len(alone.body) > 2048, requests._held) == (200, True, 0)
        untaken = [infer(app, takes) for _ in range(2)]
        while len(runs) < 3 or requests._held > 1700:
            await asyncio.sleep(0.001)
        third = await infer(app, at_once)
        assert (third.status, third.headers["retry-after"], len(runs)) == (503, "1", 3)  # before its run
        takes.set()
        taken = [await one for one in untaken]
        assert [one.status for one in taken] == [200, 200]
        assert all(len(one.body) > 640 for one in taken)
        takes.clear()
        untaken = [infer(app, takes)]
        while len(runs) < 4 or requests._held > 900:
            await asyncio.sleep(0.001)
        assert (await infer(app, at_once, binary=False)).status == 503  # its answer has no room beside another's
        takes.set()
        assert (await untaken[0]).status == 200
    assert requests._held == 0


async def test_a_request_that_waits_keeps_no_more_than_its_items(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Document(dict):  # type: ignore[type-arg]
        """A dict cannot have weak references."""

    documents: list[weakref.ref[Document]] = []
    waiting: list[tuple[Document | None, int]] = []
    split, answer = requests.split_json, Predictor.timed_batch

    def split_json(raw: bytes, length: str | None) -> tuple[Any, bytes]:
        found, tail = split(raw, length)
        document = Document(found)
        documents.append(weakref.ref(document))
        return document, tail

    def timed_batch(self: Predictor, items: Any, wanted: Any) -> Any:
        waiting.append((documents[-1](), requests._held))
        return answer(self, items, wanted)

    monkeypatch.setattr(requests, "split_json", split_json)
    monkeypatch.setattr(Predictor, "timed_batch", timed_batch)
    item = json.dumps([[1]] * 1000)
    tensor = {"name": "item", "shape": [1], "datatype": "BYTES", "data": [item]}
    async with started(served(tmp_path, "json", log)) as app:
        assert (await post(app, INFER, {"inputs": [tensor], "unknown": [{}] * 1000})).status == 200
    [(document, held)] = waiting
    assert document is None
    assert held > 10 * len(item)


async def test_json_values_are_items(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "json", log)) as app:
        assert (await post(app, "/predict", {"item": {"a": 1}})).json() == 3.0
        assert (await post(app, "/predict", {"items": [[], [1], "好的"]})).json() == {"predictions": [1.0, 3.0, 5.0]}
        for wrong in ({"text": "a"}, {"item": 1, "scores": True}, [1], {"items": {}}, {"item": None}):
            assert (await post(app, "/predict", wrong)).status == 422


async def test_texts_are_asked_as_of_any_model(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "text", log)) as app:
        assert (await post(app, "/predict", {"text": "很好"})).json() == 5.0
        assert (await post(app, "/predict", {"texts": ["a", "很好"]})).json() == {"predictions": [3.0, 5.0]}
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["很好"]}
        [output] = (await post(app, INFER, {"inputs": [tensor]})).json()["outputs"]
        assert output == {"name": "answer", "datatype": "BYTES", "shape": [1], "data": ["5.0"]}


async def test_a_handler_that_fails_is_an_error_of_the_server(tmp_path: Path, log: io.StringIO) -> None:
    source = HANDLER.format(item="json").replace("return outputs", "return secret")
    async with started(served(tmp_path, "json", log, handler=source)) as app:
        answer = await post(app, "/predict", {"item": "private words"})
        assert answer.status == 500
        assert b"private words" not in answer.body
        assert (await ask(app, "GET", "/readyz")).status == 200
    assert "private words" not in log.getvalue()


async def test_properties_and_openapi_describe_the_items(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "file", log)) as app:
        model = (await ask(app, "GET", "/model")).json()
        assert (model["task"], model["item"], model["labels"], model["max_length"]) == ("custom", "file", [], 0)
        content = (await ask(app, "GET", "/openapi.json")).json()["paths"]["/predict"]["post"]["requestBody"]["content"]
        assert set(content) == {"application/json", "application/octet-stream"}
        assert [form["required"] for form in content["application/json"]["schema"]["oneOf"]] == [["file"], ["files"]]
        metadata = (await ask(app, "GET", "/v2/models/imported")).json()
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["file"]
        assert [tensor["name"] for tensor in metadata["outputs"]] == ["answer"]


async def test_kserve_takes_files_in_base64_and_in_binary(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "file", log)) as app:
        tensor = {"name": "file", "shape": [2], "datatype": "BYTES", "data": [in_base64(b"ab"), in_base64(b"")]}
        [output] = (await post(app, INFER, {"inputs": [tensor]})).json()["outputs"]
        assert [json.loads(text) for text in output["data"]] == [5.0, 1.0]

        tail = packed(b"\0\xff", b"abc")
        binary = {**tensor, "parameters": {"binary_data_size": len(tail)}}
        del binary["data"]
        head = json.dumps({"inputs": [binary], "parameters": {"binary_data_output": True}}).encode()
        length = {"inference_header_content_length": str(len(head))}
        answer = await ask(app, "POST", INFER, head + tail, **length)
        size = int(answer.headers["inference-header-content-length"])
        [output] = json.loads(answer.body[:size])["outputs"]
        assert output["parameters"] == {"binary_data_size": len(answer.body) - size}
        assert answer.body[size:] == packed(b"5.0", b"7.0")


async def test_kserve_takes_json_values_as_texts_and_in_binary(tmp_path: Path, log: io.StringIO) -> None:
    async with started(served(tmp_path, "json", log)) as app:
        tensor = {"name": "item", "shape": [2], "datatype": "BYTES", "data": ["[1, 2]", '"好"']}
        [output] = (await post(app, INFER, {"inputs": [tensor]})).json()["outputs"]
        assert output["data"] == ["5.0", "3.0"]
        tail = packed('{"好": 1}'.encode())
        binary = {"name": "item", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(tail)}}
        head = json.dumps({"inputs": [binary]}).encode()
        answer = await ask(app, "POST", INFER, head + tail, inference_header_content_length=str(len(head)))
        assert answer.json()["outputs"][0]["data"] == ["3.0"]


@pytest.mark.parametrize(
    ("item", "data", "status", "words"),
    [
        ("file", ["not base64"], 422, "file 1 is not base64"),
        ("file", [3], 422, "file 1 is not base64"),
        ("file", [None], 422, "item 1 is null"),
        ("file", [], 400, "there is no"),
        ("file", ["YQ=="] * 3, 422, "more than 2"),
        ("json", ["{"], 400, "not JSON"),
        ("json", [{"a": 1}], 400, "not a text"),
        ("json", ["null"], 422, "item 1 is null"),
        ("json", [], 400, "there is no"),
    ],
)
async def test_kserve_refuses_what_is_no_item(
    tmp_path: Path, log: io.StringIO, item: str, data: list[Any], status: int, words: str
) -> None:
    async with started(served(tmp_path, item, log, max_texts=2)) as app:
        name = "file" if item == "file" else "item"
        tensor = {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data}
        answer = await post(app, INFER, {"inputs": [tensor]})
        assert answer.status == status, answer.json()
        assert words in answer.json()["error"]
