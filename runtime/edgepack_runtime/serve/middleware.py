"""Middleware around every request: request id, access checks, response headers, metrics, one log line, errors.

Any page in a browser on the same machine can send requests to a loopback address. Without a token the server therefore
accepts only loopback names as `Host`, against DNS rebinding, and refuses POST requests that a browser sends for a page
of another origin (`Sec-Fetch-Site`, `Origin`). Without CORS headers, such pages cannot read answers either. HTTP/1.0
without a `Host` is accepted: no browser sends it, but health checks do.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
import uuid
from typing import Any, Awaitable, Callable, Dict, List, MutableMapping, NamedTuple, Optional, Tuple
from urllib.parse import unquote

from edgepack_runtime.errors import EdgepackError, UsageError
from edgepack_runtime.serve import http_errors, logs
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.metrics import Metrics
from edgepack_runtime.serve.requests import Reservation
from edgepack_runtime.serve.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Open without a token: health checks, and the pages, which ask for the token.
OPEN_PATHS = ("/", "/docs", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
METRICS = "/metrics"
KSERVE = "/v2"
_ABSOLUTE = re.compile(rb"https?://([^/]*)(.*)\Z", re.IGNORECASE | re.DOTALL)
_MOST_SHOWN = 100  # characters of a client's header in a message
_ID = re.compile(r"[0-9A-Za-z._:-]{1,128}\Z")
_QUIET = ("/healthz", "/readyz", METRICS, "/v2/health/live", "/v2/health/ready")  # polled; logged at debug level
_OTHER = "other"
_CLOSE = (b"connection", b"close")
_PIECE_BYTES = 1 << 15  # of a body that has more


class Controls(NamedTuple):
    """Callbacks with which the server stops the application.

    drain: be no longer ready; called before the sockets close.
    draining: whether that was called; connections then end with their next answer.
    give_up: refuse all texts that are not answered yet, queued or running.
    busy: whether a batch is running.
    """

    drain: Callable[[], None]
    draining: Callable[[], bool]
    give_up: Callable[[], None]
    busy: Callable[[], bool]


class Middleware:
    """ASGI middleware around `app`.

    Args:
        app: raises `HttpError`, or `EdgepackError` if the model fails. It puts the path of the route into
            `scope["route_path"]`, and further fields of the log line into `scope["log_fields"]`. What it holds in
            `scope["reservation"]` is released when the response was sent.
        controls: callbacks to stop `app`.
        route_of: path of the route that a request would get; None without one.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics,
        logger: logging.Logger,
        controls: Controls,
        route_of: Callable[[Scope], Optional[str]],
    ) -> None:
        self._app = app
        self._route_of = route_of
        self.controls = controls
        self._token = settings.token.encode("ascii") if settings.token else None
        self._hosts = frozenset(settings.hosts)
        self._metrics = metrics
        self._logger = logger
        self.metrics_port: Optional[int] = None  # of a listener that gives the metrics alone, to anyone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        _to_origin_form(scope, headers)
        scope["request_id"] = given if _ID.match(given) else uuid.uuid4().hex
        scope["log_fields"] = {}
        scope["reservation"] = reservation = Reservation()
        sent = _Sent(send, scope["request_id"], self.controls.draining)
        self._metrics.begin()
        try:
            self._check(scope, headers)
            await self._app(scope, receive, sent)
        except HttpError as error:
            # Without its traceback, whose frames hold the answer for which there was no memory.
            await self._refuse(scope, sent, error.with_traceback(None))
        except UsageError as error:  # a handler's, about an item
            await self._refuse(scope, sent, http_errors.unfit(error.what, error.fix))
        except EdgepackError as error:
            self._note(scope, error)
            await self._refuse(scope, sent, http_errors.broken(error.what))
        except Exception as error:  # noqa: BLE001 - logged and answered with 500
            self._note(scope, error)
            await self._refuse(scope, sent, http_errors.broken("unexpected error"))
        finally:
            reservation.release()
            self._close(scope, sent.status, time.perf_counter() - begin)

    def _note(self, scope: Scope, error: Exception) -> None:
        """Log an error by type and place. Its message, or that of its cause in a handler, may quote a text."""
        scope["log_fields"].update(logs.error((type(error), error, error.__traceback__)))
        if self._logger.isEnabledFor(logging.DEBUG):
            scope["log_fields"]["why"] = str(error)

    def _check(self, scope: Scope, headers: Dict[str, str]) -> None:
        method, path = scope["method"], scope["path"]
        if "transfer-encoding" in headers and "content-length" in headers:  # RFC 9112, 6.1: request smuggling
            raise HttpError(
                400,
                "two_lengths",
                "the request has `Transfer-Encoding` and `Content-Length`",
                fix="send one of them",
                headers={"Connection": "close"},
            )
        if self.metrics_port is not None and (scope.get("server") or (None, None))[1] == self.metrics_port:
            if path != METRICS:
                raise HttpError(404, "no_such_path", f"this port has {METRICS} alone", fix="ask the server's own port")
            return
        address = headers.get("host", "").lower()
        without = "host" not in headers and scope["http_version"] == "1.0"
        if self._hosts and not without and re.sub(r":[0-9]*\Z", "", address) not in self._hosts:
            raise HttpError(
                421,
                "wrong_host",
                f"this server does not answer for the host {address[:_MOST_SHOWN]!r}",
                fix="ask 127.0.0.1, or serve with --allow-host",
            )
        if self._token is None:
            if method not in ("GET", "HEAD") and _is_cross_origin(address, headers):
                raise HttpError(403, "cross_origin", "a page of another origin sent this request")
            return
        if path in OPEN_PATHS:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # Constant-time comparison, against timing attacks.
        given = scheme.lower() == "bearer"
        if not given or not hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            raise HttpError(
                401,
                "unauthorized",
                "this token is wrong" if given else "this server needs a token",
                fix="send it as `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": 'Bearer realm="edgepack"'},
            )

    async def _refuse(self, scope: Scope, sent: _Sent, error: HttpError) -> None:
        scope.setdefault("route_path", self._route_of(scope) or _OTHER)
        self._metrics.rejected(scope["route_path"], error.code)
        scope["log_fields"]["code"] = error.code
        if sent.status:  # the response has already begun
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


def _to_origin_form(scope: Scope, headers: Dict[str, str]) -> None:
    """Read a target in the absolute form, as clients of proxies send it: its host counts (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.match(scope.get("raw_path") or b"")
    if found is not None:
        headers["host"] = found[1].decode("latin-1")
        scope["raw_path"] = found[2] or b"/"
        scope["path"] = unquote(scope["raw_path"].decode("ascii"))


def _is_cross_origin(address: str, headers: Dict[str, str]) -> bool:
    """Whether a browser sent the request for a page of another origin. Other clients send neither header.

    `same-site` counts as another origin: all ports of localhost are the same site.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != address


class _Sent:
    """Sends a response with the common headers, and stores its status (0 until it begins).

    A large body is sent in pieces, ended by an empty one: a server takes each when the client has taken those before.
    """

    def __init__(self, send: Send, request_id: str, draining: Callable[[], bool]) -> None:
        self._send = send
        self._draining = draining
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
            if self._draining() and _CLOSE not in message["headers"]:
                message["headers"].append(_CLOSE)
        elif len(message.get("body", b"")) > _PIECE_BYTES and not message.get("more_body"):
            body = message["body"]
            for start in range(0, len(body), _PIECE_BYTES):
                piece = body[start : start + _PIECE_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            message = {"type": "http.response.body"}
        await self._send(message)
