"""Middleware around every request: request id, access checks, response headers, metrics, one log line, errors.

A loopback address alone protects little: any page in a browser on the same machine can send requests to it. Without a
token the server therefore answers only under the names of the loopback (a page that lets its own name point there sends
that name as `Host`), and takes no POST that a browser sends for a page of another origin (`Sec-Fetch-Site`, `Origin`).
No page of another origin can read an answer, since no header allows it.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
import uuid
from typing import Any, Awaitable, Callable, Dict, List, MutableMapping, NamedTuple, Tuple

from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.serve import http_errors, logs
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.metrics import Metrics
from edgepack_runtime.serve.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Who watches over a server has no token; the page is the same for everyone, and asks for one.
OPEN_PATHS = ("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
KSERVE = "/v2"
_ID = re.compile(r"[0-9A-Za-z._:-]{1,128}\Z")
_QUIET = ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready")  # asked every few seconds
_OTHER = "other"


class Controls(NamedTuple):
    """How whoever runs the server stops the application behind it.

    drain: take no more texts; it is called before the sockets close. This and `give_up` may be called by a signal's
        handler.
    give_up: answer no text any more, whether it waits or runs.
    busy: whether the model runs.
    """

    drain: Callable[[], None]
    give_up: Callable[[], None]
    busy: Callable[[], bool]


class Middleware:
    """An ASGI application around `app`.

    Args:
        app: raises `HttpError`, or `EdgepackError` where the model fails. It puts the path of the route into
            `scope["route_path"]`, and further fields of the log line into `scope["log_fields"]`.
        controls: of `app`.
    """

    def __init__(
        self, app: App, settings: Settings, metrics: Metrics, logger: logging.Logger, controls: Controls
    ) -> None:
        self._app = app
        self.controls = controls
        self._token = settings.token.encode("ascii") if settings.token else None
        self._hosts = frozenset(settings.hosts)
        self._metrics = metrics
        self._logger = logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        scope["request_id"] = given if _ID.match(given) else uuid.uuid4().hex
        scope["log_fields"] = {}
        sent = _Sent(send, scope["request_id"])
        self._metrics.begin()
        try:
            self._check(scope["method"], scope["path"], headers)
            await self._app(scope, receive, sent)
        except HttpError as error:
            await self._refuse(scope, sent, error)
        except EdgepackError as error:
            # The model's own errors name the file and the logits, and no text.
            scope["log_fields"]["why"] = str(error)
            await self._refuse(scope, sent, http_errors.broken(error.what))
        except Exception as error:  # noqa: BLE001 - the last place that can answer; it is logged
            scope["log_fields"].update(logs.error((type(error), error, error.__traceback__)))
            await self._refuse(scope, sent, http_errors.broken("an error nobody foresaw"))
        finally:
            self._close(scope, sent.status, time.perf_counter() - begin)

    def _check(self, method: str, path: str, headers: Dict[str, str]) -> None:
        address = headers.get("host", "").lower()
        if self._hosts and re.sub(r":[0-9]*\Z", "", address) not in self._hosts:
            raise HttpError(421, "wrong_host", "this server does not answer under that name", fix="ask 127.0.0.1")
        if self._token is None:
            if method not in ("GET", "HEAD") and _is_cross_origin(address, headers):
                raise HttpError(403, "cross_origin", "a page of another origin sent this request")
            return
        if path in OPEN_PATHS:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # In constant time: how long it takes must not tell how much of a guess was right.
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            raise HttpError(
                401,
                "unauthorized",
                "this server wants a token",
                fix="send it as `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": 'Bearer realm="edgepack"'},
            )

    async def _refuse(self, scope: Scope, sent: _Sent, error: HttpError) -> None:
        self._metrics.rejected(error.code)
        scope["log_fields"]["code"] = error.code
        if sent.status:  # too late: what was begun cannot be taken back
            return
        if error.status == http_errors.GONE:
            sent.status = http_errors.GONE
            return
        kserve = scope["path"] == KSERVE or scope["path"].startswith(KSERVE + "/")
        document = error.document(scope["request_id"], kserve=kserve)
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await sent({"type": "http.response.start", "status": error.status, "headers": pairs})
        await sent({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _close(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope.get("route_path", _OTHER)
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else _OTHER
        self._metrics.end(path, method, status, seconds)
        level = logging.ERROR if status >= 500 and status not in (503, 504) else logging.INFO
        if status == 200 and path in _QUIET:
            level = logging.DEBUG
        logs.event(
            self._logger,
            level,
            "request",
            request_id=scope["request_id"],
            method=method,
            path=path,
            status=status,
            ms=round(seconds * 1e3, 3),
            **scope["log_fields"],
        )


def _is_cross_origin(address: str, headers: Dict[str, str]) -> bool:
    """Whether a browser sent this for a page that does not come from this server; other programs send neither header.

    `same-site` is another origin too: every port of localhost is the same site.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != address


class _Sent:
    """Sends a response with the headers that each has, and remembers its status (0 until it begins)."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._headers: List[Tuple[bytes, bytes]] = [
            (b"x-request-id", request_id.encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
        ]
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *self._headers]
        await self._send(message)
