"""The HTTP interface of a real, tiny model, asked without a socket."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import write_imported
from tests.unit.runtime.serve.asgi import Answer, Held, ask, post, started
from tests.unit.runtime.ssh_keys import write_trusted_keys
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.bundle.model_config import LINEAR_NAME, LinearConfig
from edgepack_runtime.errors import BundleInvalidError, StageFailedError, UsageError
from edgepack_runtime.inference import linear
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import logs
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.settings import Settings

TOKEN = "0123456789abcdef0123"
MakeApp = Callable[..., Middleware]


def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The error object of an answer with this status and code."""
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
    error: dict[str, Any] = answer.json()["error"]
    return error


def refused_fix(answer: Answer) -> str:
    """What the answer says to do, in either protocol."""
    error = answer.json()["error"]
    return str(error if isinstance(error, str) else error["fix"])


async def test_the_server_reads_a_long_text_in_windows_where_that_is_asked_for(make_app: MakeApp) -> None:
    text = "很" * 20 + "好" * 20  # 16 tokens are read of it, or all
    for long, label in (("truncate", "bad"), ("windows", "good")):
        async with started(make_app(long=long)) as app:
            assert (await post(app, "/predict", {"text": text})).json()["label"] == label


async def test_a_text_of_too_many_windows_is_refused(make_app: MakeApp) -> None:
    few, many = "好" * 14 * 2, "好" * 14 * 20  # two windows overlap by a quarter
    async with started(make_app(long="windows", max_windows=3)) as app:
        assert (await post(app, "/predict", {"text": few})).json()["label"] == "good"
        error = refused(await post(app, "/predict", {"texts": [few, many]}), 422, "unprocessable")
    assert error["message"] == "a text has 26 windows of 16 tokens, and 3 are read"
    assert "--max-windows" in error["fix"]


async def test_long_texts_in_windows_do_not_share_a_batch(make_app: MakeApp) -> None:
    one_run = 32 * 16  # characters
    for length, batch in ((one_run // 4, 4), (one_run // 2, 2), (one_run, 1)):
        async with started(make_app(long="windows")) as app:
            answer = await post(app, "/predict", {"texts": ["差" * length] * 5})
            assert f'batch;desc="{batch}"' in answer.headers["server-timing"]


def test_no_server_loads_a_folder_where_keys_are_trusted(
    tmp_path: Path, keys: tuple[Path, Path], machine: Path
) -> None:
    """Servers such as gunicorn start the application without the verb `serve`."""
    settings = Settings(model=write_model_folder(tmp_path / "hotel"))
    assert application.load(settings).facts.name == "hotel"
    write_trusted_keys(machine, keys[0])
    with pytest.raises(BundleInvalidError, match="accepts only signed bundles"):
        application.load(settings)


def test_a_server_of_a_release_heeds_the_keys_of_its_prefix(
    tmp_path: Path, keys: tuple[Path, Path], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(model=write_model_folder(tmp_path / "hotel"))
    monkeypatch.setattr(application.locate, "OWN_FOLDER", tmp_path / "prefix" / "releases" / "1.0.0-0")
    assert application.load(settings).facts.name == "hotel"
    (tmp_path / "prefix").mkdir()
    write_trusted_keys(tmp_path / "prefix", keys[0])
    with pytest.raises(BundleInvalidError, match="accepts only signed bundles"):
        application.load(settings)


async def test_one_text_gets_what_predict_prints(app: Middleware) -> None:
    answer = await post(app, "/predict", {"text": "店很好"})
    assert answer.status == 200
    assert answer.json() == {"label": "good", "score": pytest.approx(0.952574, abs=1e-5)}
    assert set(answer.headers) >= {"server-timing", "x-request-id", "x-content-type-options", "cache-control"}
    assert [part.split(";")[0] for part in answer.headers["server-timing"].split(", ")] == [
        "queue", "tokenize", "run", "post", "batch",
    ]  # fmt: skip
    scored = await post(app, "/predict", {"text": "店很好", "scores": True})
    assert set(scored.json()["scores"]) == {"bad", "good"}


async def test_several_texts_are_answered_in_order(app: Middleware) -> None:
    answer = await post(app, "/predict", {"texts": ["好", "差", "好"]})
    assert [entry["label"] for entry in answer.json()["predictions"]] == ["good", "bad", "good"]
    one = await post(app, "/predict", {"texts": ["好"]})
    assert len(one.json()["predictions"]) == 1


async def test_the_server_answers_for_pairs_several_labels_and_spans(make_app: MakeApp) -> None:
    async with started(make_app(model={"task": "text-pair-classification"})) as app:
        assert (await post(app, "/predict", {"text": "好", "text_pair": "差"})).json()["label"] == "good"
        assert (await post(app, "/predict", {"texts": [["差", "好"]]})).json()["predictions"][0]["label"] == "bad"
        refused(await post(app, "/predict", {"text": "好"}), 422, "unprocessable")
    async with started(make_app(model={"multi_label": True})) as app:
        answer = await post(app, "/predict", {"text": "好", "scores": True})
        assert answer.json()["labels"] == ["good"]
    async with started(make_app(model={"task": "token-classification"})) as app:
        (span,) = (await post(app, "/predict", {"text": "好店"})).json()["spans"]
        assert (span["start"], span["end"], span["label"], span["text"]) == (1, 2, "place", "店")
        # half of a pair of surrogates goes back as it came
        answer = await ask(app, "POST", "/predict", b'{"text": "\\ud800\xe5\xba\x97"}', content_type="application/json")
        assert answer.status == 200
        assert answer.json()["spans"][0]["label"] == "place"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "not a JSON object"),
        ({}, "either `text` or `texts`"),
        ({"text": "a", "texts": ["a"]}, "either `text` or `texts`"),
        ({"txt": "a"}, "no key 'txt'"),
        ({"text": 3}, "text 1 is not a text"),
        ({"text": " \n"}, "text 1 is empty"),
        ({"texts": []}, "a list with at least one item"),
        ({"texts": "abc"}, "a list with at least one item"),
        ({"texts": ["a", ""]}, "text 2 is empty"),
        ({"texts": ["a", "\u200b\ufe0f"]}, "text 2 is empty"),
        ({"texts": [["a", "b"]]}, "text 1 is not a text"),
        ({"texts": ["a"] * 33}, "33 texts are more than 32"),
        ({"text": "a", "text_pair": "b"}, "single texts, not pairs"),
        ({"texts": ["a"], "text_pair": "b"}, "belongs to `text`"),
        ({"text": "a", "scores": 1}, "`scores` is true or false"),
    ],
)
async def test_the_server_refuses_a_senseless_request_with_422(app: Middleware, document: Any, words: str) -> None:
    assert words in refused(await post(app, "/predict", document), 422, "unprocessable")["message"]


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "empty"), (b"{", "line 1 column 2"), (b'{"text": "a"} x', "line 1 column 15"), (b"[" * 60_000, "JSON"),
        (b"\xff", "byte 1"), ('{"text": "好"}'.encode("gbk"), "byte 11"),
        *(('{"text": "好"}'.encode(encoding), "UTF-16") for encoding in ("utf-16", "utf-16-be", "utf-32")),
    ],
)  # fmt: skip
async def test_the_server_refuses_what_is_no_json_with_400(app: Middleware, body: bytes, cause: str) -> None:
    answer = await ask(app, "POST", "/predict", body, content_type="application/json")
    assert cause in refused(answer, 400, "malformed")["message"]


async def test_json_may_begin_with_a_byte_order_mark(app: Middleware) -> None:
    """As .NET's `Encoding.UTF8` writes it."""
    assert (await ask(app, "POST", "/predict", '{"text": "好"}'.encode("utf-8-sig"))).json()["label"] == "good"
    infer = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["好"]}]}
    body = json.dumps(infer).encode("utf-8-sig")
    assert (await ask(app, "POST", "/v2/models/hotel/infer", body)).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""])
async def test_the_content_type_does_not_matter(app: Middleware, kind: str) -> None:
    assert (await ask(app, "POST", "/predict", '{"text": "好"}'.encode(), content_type=kind)).status == 200
    assert (await ask(app, "POST", "/predict", '{"text": "好"}'.encode())).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:3000"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
    ],
)
async def test_a_browser_asks_only_for_the_page_of_this_server(app: Middleware, headers: dict[str, str]) -> None:
    answer = await post(app, "/predict", {"text": "好"}, **headers)
    refused(answer, 403, "cross_origin")
    assert "access-control-allow-origin" not in answer.headers
    assert (await ask(app, "GET", "/", **headers)).status == 200  # a link on another page may lead here
    own = {"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:8000"}
    assert (await post(app, "/predict", {"text": "好"}, **own)).status == 200


async def test_the_server_refuses_a_body_that_is_compressed_too_large_or_too_slow(make_app: MakeApp) -> None:
    async with started(make_app(max_body_kib=1, timeout_s=0.05)) as app:
        compressed = await ask(app, "POST", "/predict", b"x", content_encoding="gzip")
        refused(compressed, 415, "compressed")
        assert compressed.headers["accept-encoding"] == "identity"
        told = await ask(app, "POST", "/predict", b"", content_type="application/json", content_length="1025")
        untold = await ask(app, "POST", "/predict", [b"x" * 600] * 2, hang=True, content_type="application/json")
        for answer in (told, untold):
            refused(answer, 413, "too_large")
            assert answer.headers["connection"] == "close"
        slow = await ask(app, "POST", "/predict", b"{", hang=True, content_type="application/json")
        refused(slow, 408, "body_timeout")


async def test_health_readiness_and_facts(app: Middleware) -> None:
    for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/hotel/ready"):
        assert (await ask(app, "GET", path)).status == 200, path
    facts = (await ask(app, "GET", "/model")).json()
    assert (facts["name"], facts["labels"], facts["limits"]["max_texts"]) == ("hotel", ["bad", "good"], 32)
    assert (await ask(app, "HEAD", "/healthz")).status == 200
    app.controls.drain()
    assert (await ask(app, "GET", "/healthz")).status == 200
    for path in ("/readyz", "/v2/health/ready", "/v2/models/hotel/ready"):
        assert (await ask(app, "GET", path)).status == 503
    answer = await post(app, "/predict", {"text": "好"})
    assert (answer.status, answer.headers["connection"]) == (200, "close")  # balancers send it for a while
    app.controls.give_up()
    answer = await post(app, "/predict", {"text": "好"})
    refused(answer, 503, "draining")
    assert answer.headers["retry-after"] == "1"


async def test_a_server_is_not_ready_before_the_model_is_there(make_app: MakeApp) -> None:
    app = make_app()
    assert (await ask(app, "GET", "/healthz")).status == 200
    refused(await ask(app, "GET", "/readyz"), 503, "starting")


async def test_a_hanging_model_is_not_ready(app: Middleware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack_runtime.serve.batcher.Batcher.longest_run_s", lambda self: 11.0)
    answer = await ask(app, "GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "stuck"})
    assert [(await ask(app, "GET", path)).status for path in ("/healthz", "/v2/health/live")] == [200, 200]
    monkeypatch.setattr("edgepack_runtime.serve.batcher.Batcher.longest_run_s", lambda self: 31.0)
    assert [(await ask(app, "GET", path)).status for path in ("/healthz", "/v2/health/live")] == [503, 503]


async def test_a_process_whose_model_hangs_ends(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    asked = asyncio.Event()

    def end_now(code: int) -> None:
        ended.append(code)
        asked.set()

    monkeypatch.setattr("edgepack_runtime.serve.service.end_now", end_now)
    monkeypatch.setattr("edgepack_runtime.serve.service._WATCH_S", 0.001)
    run_s = [0.0]
    monkeypatch.setattr("edgepack_runtime.serve.batcher.Batcher.longest_run_s", lambda self: run_s[0])
    alive: list[float] = []
    told = asyncio.Event()

    def tell() -> None:
        alive.append(run_s[0])
        told.set()

    settings = Settings(model=write_model_folder(tmp_path / "hotel"))
    async with started(application.application(settings, logs.configure("info", log), heartbeat=tell)):
        run_s[0] = 29.0
        told.clear()
        await asyncio.wait_for(told.wait(), 20)
        run_s[0] = 31.0  # `alive` is called no more
        count = len(alive)
        await asyncio.sleep(0.02)
        assert (len(alive), ended) == (count, [])
        run_s[0] = 61.0
        await asyncio.wait_for(asked.wait(), 20)
    assert set(ended) == {5}
    assert '"event": "stuck"' in log.getvalue()


async def test_unknown_paths_and_methods(app: Middleware) -> None:
    for path in ("/nothing", "/healthz/", "//healthz", "/v2/"):
        assert (await ask(app, "GET", path)).status == 404
    refused(await ask(app, "GET", "/nothing"), 404, "no_such_path")
    answer = await ask(app, "GET", "/predict")
    refused(answer, 405, "no_such_method")
    assert answer.headers["allow"] == "POST"
    assert b"x-request-id" not in (await ask(app, "HEAD", "/nothing")).body
    for path, near in (
        ("//predict", "/predict"),
        ("/predict/", "/predict"),
        ("/v2//models/hotel/", "/v2/models/hotel"),
    ):
        assert refused_fix(await ask(app, "POST", path, b"{}")).endswith(f"ask for {near}")
    for path in ("/", "/predict", "/metrics", "*"):  # HAProxy's check asks so
        answer = await ask(app, "OPTIONS", path)
        assert (answer.status, answer.body) == (204, b"")
        assert ("POST" in answer.headers["allow"]) == (path in ("/predict", "*"))
    assert (await ask(app, "GET", "*")).status == 404
    assert (await ask(app, "GET", "/v2/models/other")).json()["code"] == "no_such_model"
    assert (await ask(app, "GET", "/v2/models/hotel/versions/9")).json()["code"] == "no_such_version"


async def test_a_request_of_two_lengths_is_refused_and_its_connection_closed(app: Middleware) -> None:
    answer = await ask(app, "POST", "/predict", b"{}", transfer_encoding="chunked", content_length="2")
    refused(answer, 400, "two_lengths")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:8000", 200),
        ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421), ("localhost@evil.example:80", 421),
    ],
)  # fmt: skip
async def test_a_name_that_points_to_the_loopback_is_not_served(app: Middleware, host: str, status: int) -> None:
    answer = await ask(app, "GET", "/healthz", host=host)
    assert answer.status == status
    if status == 421:
        assert repr(host) in refused(answer, 421, "wrong_host")["message"]
    for version in ("1.1", "1.0"):  # the host of the target counts
        scoped = {
            "path": f"http://{host}/healthz",
            "raw_path": f"http://{host}/healthz".encode(),
            "http_version": version,
        }
        assert (await ask(app, "GET", "", scoped=scoped, host="127.0.0.1")).status == status
        assert (await ask(app, "GET", "", scoped=scoped, host="evil.example")).status == status


async def test_http_1_0_needs_no_host(app: Middleware) -> None:
    for method in ("GET", "HEAD"):
        assert (await ask(app, method, "/healthz", scoped={"http_version": "1.0"}, host=None)).status == 200
    assert (await ask(app, "GET", "/healthz", host=None)).status == 421
    assert (await ask(app, "GET", "/healthz", scoped={"http_version": "1.0"}, host="evil.example")).status == 421


async def test_a_target_in_absolute_form_is_checked_like_any_other(make_app: MakeApp) -> None:
    async with started(make_app(token=TOKEN, hosts=())) as app:
        for target, status in (
            ("http://a/model", 401),
            ("HTTPS://a", 200),
            ("http://a/%6dodel", 401),
            ("ftp://a/", 401),
        ):
            scoped = {"path": target, "raw_path": target.encode()}
            assert (await ask(app, "GET", "", scoped=scoped)).status == status, target


async def test_the_port_of_the_metrics_needs_no_token_and_has_nothing_else(make_app: MakeApp) -> None:
    made = make_app(token=TOKEN, hosts=())
    made.metrics_port = 8002
    async with started(made) as app:
        own = {"server": ("10.0.0.7", 8002)}
        assert b"edgepack_in_flight 1.0" in (await ask(app, "GET", "/metrics", scoped=own, host="10.0.0.7:8002")).body
        for path in ("/predict", "/model", "/", "/healthz", "/metrics/", "//metrics"):
            refused(
                await ask(app, "POST", path, b"{}", scoped=own, authorization=f"Bearer {TOKEN}"), 404, "no_such_path"
            )
        for server in (("10.0.0.7", 8000), ("/run/socket", None), None):
            assert (await ask(app, "GET", "/metrics", scoped={"server": server})).status == 401


async def test_a_token_is_wanted_by_everything_but_health_and_page(make_app: MakeApp) -> None:
    async with started(make_app(token=TOKEN, hosts=())) as app:
        for path in ("/healthz", "/readyz", "/", "/v2/health/live", "/v2/health/ready"):
            assert (await ask(app, "GET", path, host="device.example")).status == 200
        for wrong in ({}, {"authorization": TOKEN}, {"authorization": "Bearer "}, {"authorization": f"Bearer {TOKEN}x"},
                      {"authorization": "Bearer é"}):  # fmt: skip
            for path in ("/metrics", "/model", "/openapi.json", "/v2", "/v2/models/hotel", "/nothing"):
                answer = await ask(app, "GET", path, **wrong)
                assert answer.status == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer")
                given = wrong.get("authorization", "").startswith("Bearer")
                assert ("this token is wrong" if given else "this server needs a token").encode() in answer.body
        assert (await post(app, "/predict", {"text": "好"}, authorization=f"bearer {TOKEN}")).status == 200


async def test_request_ids(app: Middleware) -> None:
    assert (await ask(app, "GET", "/healthz", x_request_id="a-1.b:2")).headers["x-request-id"] == "a-1.b:2"
    for bad in ("", "a b", "x" * 129, 'a"}', "a\r\nb"):
        made = (await ask(app, "GET", "/healthz", x_request_id=bad)).headers["x-request-id"]
        assert len(made) == 32
        assert made != bad


async def test_log_lines_are_json_and_hold_no_text(make_app: MakeApp, log: io.StringIO) -> None:
    async with started(make_app()) as app:
        await post(app, "/predict", {"text": "好秘密"}, x_request_id="first")
        await post(app, "/predict", {"text": ["好秘密"]})
        await post(app, "/v2/models/hotel/infer", {"inputs": "好秘密"})
        await ask(app, "GET", "/秘密")
    assert "密" not in log.getvalue()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (first,) = [line for line in lines if line.get("request_id") == "first"]
    assert (first["event"], first["path"], first["status"], first["texts"]) == ("request", "/predict", 200, 1)
    assert {"time", "level", "ms", "queue_ms", "run_ms", "batch"} <= set(first)
    assert lines[0]["event"] == "ready"
    assert lines[-1] == {**lines[-1], "event": "drained", "given_up": 0}
    assert [line["path"] for line in lines if line.get("status") == 404] == ["other"]


async def test_an_item_that_a_handler_refuses_is_422(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> Any:
        raise UsageError("the file is no image", fix="send a PNG file")

    monkeypatch.setattr(Predictor, "timed_batch", refuses)
    async with started(make_app()) as app:
        error = refused(await post(app, "/predict", {"text": "房间"}), 422, "unprocessable")
    assert (error["message"], error["fix"]) == ("the file is no image", "send a PNG file")


async def test_an_unforeseen_error_is_500_and_told_without_its_message(
    make_app: MakeApp, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(make_app()) as app:
        for error, code in (
            (ValueError("it was 秘密"), "ValueError"),
            (StageFailedError("broken"), "StageFailedError"),
        ):

            async def fail(*_: Any, error: Exception = error) -> Any:
                raise error

            monkeypatch.setattr("edgepack_runtime.serve.batcher.Batcher.submit", fail)
            answer = await post(app, "/predict", {"text": "好"})
            assert "密" not in answer.body.decode()
            refused(answer, 500, "failed")
            line = json.loads(log.getvalue().splitlines()[-1])
            assert (line["level"], line["error"], line["why"]) == ("error", code, str(error))  # at `debug` alone


HANDLER = """\
class Handler:
    item = "text"

    def predict(self, item, graphs):
        return self.deeper(item)

    def deeper(self, item):
        raise ValueError("it was " + item)

    def score(self, answer, expected):
        return 1.0
"""


async def test_no_line_of_the_log_quotes_what_a_handler_was_given(tmp_path: Path, log: io.StringIO) -> None:
    folder = write_imported(tmp_path / "hotel", item="text", handler=HANDLER)
    logger = logs.configure("info", log)
    async with started(application.application(Settings(model=folder), logger)) as app:
        refused(await post(app, "/predict", {"text": "秘密"}), 500, "failed")
        logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <Task ValueError('秘密')>")
    (line,) = [found for found in map(json.loads, log.getvalue().splitlines()) if found.get("status") == 500]
    assert (line["error"], line["cause"]["error"]) == ("StageFailedError", "ValueError")
    assert line["cause"]["where"][-1].endswith("handler.py:8 deeper")
    assert "密" not in log.getvalue()


async def test_metrics_count_what_happened(app: Middleware) -> None:
    await post(app, "/predict", {"text": "好"})
    await post(app, "/predict", {"text": ""})
    await ask(app, "GET", "/made/up")
    await ask(app, "GET", "/model", host="evil.example")
    await ask(app, "GET", "/predict")
    lines = (await ask(app, "GET", "/metrics")).body.decode().splitlines()
    for line in (
        'edgepack_requests_total{method="POST",path="/predict",status="200"} 1.0',
        'edgepack_requests_total{method="POST",path="/predict",status="422"} 1.0',
        'edgepack_requests_total{method="GET",path="other",status="404"} 1.0',
        'edgepack_rejected_total{path="/predict",reason="unprocessable"} 1.0',
        'edgepack_rejected_total{path="other",reason="no_such_path"} 1.0',
        'edgepack_rejected_total{path="/model",reason="wrong_host"} 1.0',
        'edgepack_rejected_total{path="/predict",reason="no_such_method"} 1.0',
        'edgepack_request_duration_seconds_count{path="/predict"} 3.0',
        "edgepack_queue_seconds_count 1.0",
        "edgepack_tokenize_seconds_count 1.0",
        "edgepack_run_seconds_count 1.0",
        'edgepack_batch_size_bucket{le="1.0"} 1.0',
        "edgepack_in_flight 1.0",
        "edgepack_queued_texts 0.0",
    ):
        assert line in lines, line
    assert any(line.startswith("edgepack_model_info{") for line in lines)


async def test_metrics_count_texts_that_were_cut(app: Middleware) -> None:
    async with started(app):
        for length in (14, 15, 40):
            assert (await post(app, "/predict", {"text": "好" * length})).status == 200
        assert "edgepack_cut_texts_total 2.0" in (await ask(app, "GET", "/metrics")).body.decode().splitlines()


async def test_metrics_count_texts_by_the_model_that_answered(make_app: MakeApp, tmp_path: Path) -> None:
    document = linear.document(["好"], [[-4.0, 4.0]], [1.0], [0.0, 0.0])
    cascade = LinearConfig("cascade", 1.0, 1.0, 2.0)
    (tmp_path / "hotel").mkdir()
    (tmp_path / "hotel" / LINEAR_NAME).write_text(json.dumps(document), encoding="utf-8")
    app = make_app(model={"linear": cascade})
    async with started(app):
        for text in ("好", "好", "差"):
            assert (await post(app, "/predict", {"text": text})).status == 200
        lines = (await ask(app, "GET", "/metrics")).body.decode().splitlines()
    assert 'edgepack_answered_texts_total{model="linear"} 2.0' in lines
    assert 'edgepack_answered_texts_total{model="encoder"} 1.0' in lines


async def test_a_client_that_goes_away_is_told_in_log_and_metrics_alone(
    make_app: MakeApp, log: io.StringIO, held: Held
) -> None:
    async with started(make_app(max_batch=1)) as app:
        leaves = asyncio.Event()
        infer = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["好"]}]}
        stays = asyncio.ensure_future(post(app, "/predict", {"text": "差"}))
        await held.wait_for_one()
        asked = [
            asyncio.ensure_future(post(app, "/predict", {"text": "好"}, leaves=leaves)),
            asyncio.ensure_future(post(app, "/v2/models/hotel/infer", infer, leaves=leaves)),
        ]
        while b"edgepack_queued_texts 2.0\n" not in (await ask(app, "GET", "/metrics")).body:
            assert not any(one.done() for one in asked)
            await asyncio.sleep(0)
        leaves.set()
        assert [(await one).status for one in asked] == [0, 0]
        held.go_on.set()
        assert (await stays).json()["label"] == "bad"
        lines = (await ask(app, "GET", "/metrics")).body.decode().splitlines()
        assert 'edgepack_requests_total{method="POST",path="/predict",status="499"} 1.0' in lines
        for path in ("/predict", "/v2/models/{name}/infer"):
            assert f'edgepack_rejected_total{{path="{path}",reason="client_gone"}} 1.0' in lines
        assert "edgepack_in_flight 1.0" in lines
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (line,) = [line for line in lines if line.get("status") == 499 and line["path"] == "/predict"]
    assert (line["level"], line["code"], line["texts"]) == ("info", "client_gone", 1)


@pytest.mark.usefixtures("make_app")
async def test_create_reads_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_model_folder(tmp_path / "hotel")
    for name, value in {"MODEL": str(folder), "MAX_BATCH": "2", "LOG_LEVEL": "error"}.items():
        monkeypatch.setenv(f"EDGEPACK_SERVE_{name}", value)

    async with started(application.create()) as app:
        assert (await ask(app, "GET", "/model")).json()["limits"]["max_batch"] == 2
    monkeypatch.setenv("EDGEPACK_SERVE_PORT", "tcp://10.96.0.10:80")
    monkeypatch.setenv("EDGEPACK_SERVE_LOG_LEVEL", "warning")
    application.create()
    assert json.loads(capsys.readouterr().err)["variables"] == ["EDGEPACK_SERVE_PORT"]
    monkeypatch.setenv("EDGEPACK_SERVE_MAX_BACH", "2")
    with pytest.raises(UsageError, match="MAX_BACH"):
        application.create()
