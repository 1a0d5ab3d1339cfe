"""Runs the application on uvicorn: sockets, signals, draining."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Iterator, Mapping, NamedTuple, NoReturn, Optional, Type

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import logs
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.settings import TOKEN_VARIABLE, Settings

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send `READY=1`, `STOPPING=1` or the like; return whether anybody listens.

    Raises:
        OSError: there is a socket to tell, and it cannot be.
    """
    address = environment.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.sendall(state.encode("ascii"))
    return True


DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
_BACKLOG = 512
_KEEP_ALIVE_S = 30
_CONNECTIONS = 1024  # more are answered 503 by uvicorn
_TO_TAKE_S = 5.0  # for a client to take an answer
_AFTER_DRAIN_S = 1.0  # for the last answers to leave
_AFTER_GIVING_UP_S = 0.1  # for what was refused to leave
_INTERRUPTED = 128 + signal.SIGINT  # as a shell reports it
_SOCKET_MODE = 0o660


class Where(NamedTuple):
    """What to listen on: a socket that was handed over, one in the file system, or an address."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    uds: Optional[Path] = None
    fd: Optional[int] = None


def serve(settings: Settings, where: Where) -> int:
    """Answer until SIGTERM or SIGINT; return the exit code.

    Raises:
        UsageError: the address is not a loopback one, and there is no token.
        EnvironmentUnfitError: the address cannot be had.
        EdgepackError: as `Predictor`.
    """
    logger = logs.configure(settings.log_level)
    with listening(where) as sock:
        check_bound(sock, settings)
        app = application.application(settings, logger, _loaded(settings))
        server = Server(app, settings, sock, logger, uds=where.uds)
        # uvicorn puts back what was there before; a signal that comes between it and us must find the same.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        server.run(sockets=[sock])
    code = _INTERRUPTED if server.ended_by == signal.SIGINT else 0
    if app.controls.busy():
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End while a batch runs that nobody waits for any more: Python would wait for its thread, which may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def listening(where: Where) -> Iterator[socket.socket]:
    """A socket that listens where it is wanted; one in the file system is gone after the block.

    Raises:
        UsageError: the descriptor is not a socket.
        EnvironmentUnfitError: the address cannot be had.
    """
    try:
        if where.fd is not None:
            sock = socket.socket(fileno=where.fd)
        elif where.uds is not None:
            sock = _unix(where.uds)
        else:
            sock = _internet(where.host, where.port)
    except OSError as error:
        if where.fd is not None:
            raise UsageError(
                f"--fd {where.fd} is not a socket", why=str(error), fix="let systemd hand one over"
            ) from error
        place, fix = f"{where.host} port {where.port}", "choose another: --port N"
        if where.uds is not None:
            place, fix = str(where.uds), "choose another path: --uds PATH"
        why = str(error.strerror or error)
        raise EnvironmentUnfitError(f"this server cannot listen on {place}", why=why, fix=fix) from error
    try:
        sock.listen(_BACKLOG)
        yield sock
    finally:
        if where.uds is not None and sock.fileno() >= 0:  # else `Server.shutdown` has done so
            _remove(where.uds)
        sock.close()


def _remove(uds: Path) -> None:
    """Remove our socket, as long as it listens: one that does not is replaced by the next server, whose it is then."""
    with contextlib.suppress(FileNotFoundError):
        uds.unlink()


def check_bound(sock: socket.socket, settings: Settings) -> None:
    """Look at where the socket really is: the name it was asked for may mean anything.

    Raises:
        UsageError: others than this machine can reach it, and there is no token.
    """
    if sock.family == socket.AF_UNIX or settings.token is not None:
        return
    address = sock.getsockname()[0]
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise UsageError(
            f"{address} can be reached from other machines, and no token is wanted",
            why="whoever can send a request could use this server",
            fix=f"put a token into a file (--token-file FILE) or into {TOKEN_VARIABLE}, or leave out --host",
        )


def _internet(host: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _unix(path: Path) -> socket.socket:
    """A socket at `path`, for its user and group; one that a server left there when it was killed is replaced."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
            path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~_SOCKET_MODE)
    try:
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def _loaded(settings: Settings) -> application.Model:
    """The model; SIGTERM ends the process in order while it is being loaded. Raises as `application.load`."""
    stopped = False

    def stop(number: int, frame: Optional[FrameType]) -> NoReturn:
        nonlocal stopped
        stopped = True
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    try:
        return application.load(settings)
    except Exception:
        if stopped:  # a library that was just being loaded makes an error of its own of it
            raise SystemExit(0) from None
        raise


def patient(timeout_s: float) -> Type[H11Protocol]:
    """uvicorn's HTTP/1.1 for clients who do not make it wait: every connection is a file descriptor, and one of few.

    The headers of a request, and what is left of a body that nobody reads, have `timeout_s` seconds from the first
    byte; a whole request has as long for its body, as long for its answer, and a little to take that. uvicorn itself
    waits for ever.
    """
    whole_s = 2 * timeout_s + _TO_TAKE_S

    class Patient(H11Protocol):
        _due: Optional[asyncio.TimerHandle] = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait(timeout_s)

        def connection_lost(self, exc: Optional[Exception]) -> None:
            self._wait(None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._wait(whole_s if self._answering() else None)
            elif self._due is None:
                self._wait(timeout_s)

        def on_response_complete(self) -> None:
            super().on_response_complete()  # which may begin with the next request, where that is there already
            self._wait(whole_s if self._answering() else None)

        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _wait(self, seconds: Optional[float]) -> None:
            if self._due is not None:
                self._due.cancel()
            self._due = None if seconds is None else self.loop.call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if self.transport.get_write_buffer_size():  # nobody takes it: it would never be empty
                self.transport.abort()
            else:
                self.transport.close()

    return Patient


class Server(uvicorn.Server):
    """uvicorn that tells the application when it is to stop, and systemd when it serves and stops."""

    def __init__(
        self, app: Middleware, settings: Settings, sock: socket.socket, logger: logging.Logger, *, uds: Optional[Path]
    ) -> None:
        self._uds = uds
        self._controls = app.controls
        self._drain_s = settings.drain_s
        self._sock = sock
        self._logger = logger
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self.ended_by = 0
        super().__init__(
            uvicorn.Config(
                app,
                http=patient(settings.timeout_s),
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                limit_concurrency=_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_S,
                # By then no connection is left: uvicorn would cancel what answers them, and log a traceback of each.
                timeout_graceful_shutdown=int(settings.drain_s + _AFTER_DRAIN_S) + 2,
            )
        )

    async def shutdown(self, sockets: Any = None) -> None:
        if self._uds is not None:
            _remove(self._uds)
        await super().shutdown(sockets=sockets)

    async def startup(self, sockets: Any = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        logs.event(self._logger, logging.INFO, "listening", address=self._sock.getsockname())
        notify("READY=1")

    def handle_exit(self, sig: int, frame: Optional[FrameType]) -> None:
        first, self.ended_by = not self.ended_by, self.ended_by or sig
        if first:
            self._controls.drain()
            notify("STOPPING=1")
            self.should_exit = True
            self._hang_up_in(self._drain_s + _AFTER_DRAIN_S)
        elif self._loop is not None and not self._loop.is_closed():  # whoever asks twice does not want to wait
            self._controls.give_up()
            self._hang_up_in(_AFTER_GIVING_UP_S)

    def _hang_up_in(self, seconds: float) -> None:
        """End, in a while, the connections that are left: of clients who do not send or do not read."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
