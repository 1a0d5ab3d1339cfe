"""Asks an ASGI application as a server would, in the test's own event loop and without a socket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

AnyApp = TypeVar("AnyApp", bound=Callable[..., Any])


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body.decode("utf-8"))


async def ask(
    app: Callable[..., Any],
    method: str,
    path: str,
    body: bytes | Sequence[bytes] | None = None,
    *,
    hang: bool = False,
    leaves: asyncio.Event | None = None,
    takes: asyncio.Event | None = None,
    scoped: Mapping[str, Any] | None = None,
    **headers: str | None,
) -> Answer:
    """Send a request whose body comes in parts; with `hang` the last part never comes. `content_type` is a header.

    `scoped` are further parts of the scope; a header of None is left out.

    The client goes away when `leaves` is set, and takes what is sent to it when `takes` is. Where nothing is sent to it
    the status is 0.
    """
    parts = [body] if isinstance(body, bytes) else list(body or [b""])
    every = {"host": "127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    given = {name: value for name, value in every.items() if value is not None}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "state": {},
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), **(scoped or {}),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    messages = iter(
        {"type": "http.request", "body": part, "more_body": hang or number < len(parts)}
        for number, part in enumerate(parts, start=1)
    )

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if takes is not None:
            await takes.wait()
        sent.append(message)

    await app(scope, receive, send)
    if not sent:
        return Answer(0, {}, b"")
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in rest))


async def post(
    app: Callable[..., Any], path: str, document: Any, *, leaves: asyncio.Event | None = None, **headers: str
) -> Answer:
    """Send JSON."""
    body = json.dumps(document).encode()
    return await ask(app, "POST", path, body, leaves=leaves, **{"content_type": "application/json", **headers})


@asynccontextmanager
async def started(app: AnyApp) -> AsyncIterator[AnyApp]:
    """The application between its startup and its shutdown."""
    toward: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    back: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    task = asyncio.ensure_future(app({"type": "lifespan", "asgi": {}, "state": {}}, toward.get, back.put))
    await toward.put({"type": "lifespan.startup"})
    assert (await back.get())["type"] == "lifespan.startup.complete"
    try:
        yield app
    finally:
        await toward.put({"type": "lifespan.shutdown"})
        assert (await back.get())["type"] == "lifespan.shutdown.complete"
        await task


class Held(NamedTuple):
    """Predictions that wait for `go_on`; `entered` is set when one does."""

    go_on: threading.Event
    entered: threading.Event

    async def wait_for_one(self) -> None:
        """Return when a prediction waits."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.entered.wait, 20)
