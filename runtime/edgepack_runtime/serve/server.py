"""Server process: runs the application on uvicorn, with sockets, signals and draining."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import ipaddress
import logging
import os
import resource
import signal
import socket
import stat
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Type

if importlib.util.find_spec("ssl") is None:
    # The carried interpreter has no OpenSSL, a quarter of its size. uvicorn and anyio name parts of it: two numbers,
    # and classes of connections and errors that do not occur here (PEP 562: a module's `__getattr__`).
    sys.modules["ssl"] = ModuleType("ssl")
    sys.modules["ssl"].__dict__.update(
        PROTOCOL_TLS_SERVER=16, CERT_NONE=0, __getattr__=lambda name: type(name, (OSError,), {})
    )

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import logs
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.service import end_now
from edgepack_runtime.serve.settings import TOKEN_VARIABLE, Settings
from edgepack_runtime.util.signals import exit_code

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send `READY=1`, `STOPPING=1` or another state to systemd; return whether systemd listens.

    Raises:
        OSError: systemd's socket cannot be written.
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


def watchdog(environment: Mapping[str, str] = os.environ) -> Callable[[], object]:
    """What tells systemd's watchdog that this process is alive; does nothing where there is none (sd_notify 3)."""
    asked = "WATCHDOG_USEC" in environment and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())

    def alive() -> None:
        with contextlib.suppress(OSError):  # it is told again soon
            notify("WATCHDOG=1", environment)

    return alive if asked else (lambda: None)


DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
_BACKLOG = 128  # asyncio accepts as many at once, before it tells the protocol
_KEEP_ALIVE_S = 30
_CONNECTIONS = 1024
_OTHER_FILES = 64  # of the interpreter, the model and its libraries
_TO_TAKE_S = 5.0  # for a client to receive more of a response
_UNSENT_BYTES = 1 << 17  # in the kernel; with megabytes there, it says seldom that a slow client takes some
_READ_BYTES = 1 << 13  # at a time: what h11 parses of one connection, all others wait for
_FREE_CHUNKS = 128  # of a body; more must have at least so many bytes each on average, since each takes h11 20 us
_LEAST_CHUNK_BYTES = 64
_SILENT_S = 1.0  # from then on, a connection without a request gives way to a new one
_AFTER_DRAIN_S = 1.0  # for the last responses to be sent
_AFTER_GIVING_UP_S = 0.1  # for refused requests to be answered
_SOCKET_MODE = 0o660


class Where(NamedTuple):
    """Address of the server: an inherited socket, one in the file system, or host and port; and that of the metrics."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    uds: Optional[Path] = None
    fd: Optional[int] = None
    metrics_host: str = DEFAULT_HOST
    metrics_port: Optional[int] = None  # None: no listener for metrics


def serve(settings: Settings, where: Where) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        UsageError: the address is not a loopback address, and there is no token; the metrics have the same port.
        EnvironmentUnfitError: an address cannot be used.
        EdgepackError: as `Predictor`.
    """
    logger = logs.configure(settings.log_level)
    with listening(where) as sock, _metrics(where, sock) as metrics:
        check_bound(sock, settings)
        app = application.application(settings, logger, application.load(settings), heartbeat=watchdog())
        server = Server(app, settings, sock, logger, uds=where.uds)
        if metrics is not None:
            app.metrics_port = metrics.getsockname()[1]
        # uvicorn restores the previous handlers; a signal after that must find the same ones.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        server.run(sockets=[sock] if metrics is None else [sock, metrics])
    code = exit_code(signal.SIGINT) if server.ended_by == signal.SIGINT else 0
    if app.controls.busy():
        end_now(code)
    return code


def page_url(sock: socket.socket) -> Optional[str]:
    """The address of the page for a browser on this machine; None for a socket in the file system."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - every address of the machine
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@contextlib.contextmanager
def listening(where: Where) -> Iterator[socket.socket]:
    """A listening socket. One in the file system is removed when the context ends.

    Raises:
        UsageError: the descriptor is not a socket.
        EnvironmentUnfitError: the address cannot be used.
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
                f"--fd {where.fd} is not a socket", why=str(error), fix="pass a socket of systemd"
            ) from error
        place, fix = f"{where.host} port {where.port}", "choose another port"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            place, fix = where.host, "give an address of this machine"
        if where.uds is not None:
            place, fix = str(where.uds), "choose another path: --uds PATH"
        why = str(error.strerror or error)
        raise EnvironmentUnfitError(f"this server cannot listen on {place}", why=why, fix=fix) from error
    try:
        sock.listen(_BACKLOG)
        with contextlib.suppress(OSError):  # not TCP; connections inherit it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        yield sock
    finally:
        if where.uds is not None and sock.fileno() >= 0:  # else `Server.shutdown` has done so
            _remove(where.uds)
        sock.close()


@contextlib.contextmanager
def _metrics(where: Where, served: socket.socket) -> Iterator[Optional[socket.socket]]:
    """The listening socket for metrics, if there is one. Its port tells its requests from the others."""
    if where.metrics_port is None:
        yield None
        return
    with listening(Where(where.metrics_host, where.metrics_port)) as sock:
        if served.family != socket.AF_UNIX and served.getsockname()[1] == sock.getsockname()[1]:
            raise UsageError("the metrics have the port of the server", fix="give them another: --metrics-port N")
        yield sock


def _remove(uds: Path) -> None:
    """Remove the socket while it still listens: afterwards it may belong to the next server."""
    with contextlib.suppress(FileNotFoundError):
        uds.unlink()


def check_bound(sock: socket.socket, settings: Settings) -> None:
    """Check the real address of the socket, because a host name can resolve to any address.

    Raises:
        UsageError: other machines can reach it, and there is no token.
    """
    if sock.family == socket.AF_UNIX or settings.token is not None:
        return
    address = sock.getsockname()[0]
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise UsageError(
            message("serve.no_token", address=address),
            why=message("serve.anyone"),
            fix=message("serve.give_token", variable=TOKEN_VARIABLE),
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
    """A socket at `path`, for its user and group. The socket of a killed server is replaced."""
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
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # somebody listens, and accepts nothing
            pass
    return True


def most_connections() -> int:
    """How many connections are open at most, `_CONNECTIONS` if this process may open enough files. Raises its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _BACKLOG + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < _CONNECTIONS + others:
        wanted = _CONNECTIONS + others
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(soft - others, 1)
    return _CONNECTIONS


class _Connection(h11.Connection):
    """A client's connection that sends no bodies in tiny chunks: these take a thousand times their bytes to parse."""

    _chunks = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += 1
            self._bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS and self._bytes < _LEAST_CHUNK_BYTES * self._chunks:
                raise h11.RemoteProtocolError("the chunks of the body are too small: send larger ones")
        return event


def patient(timeout_s: float, most: int) -> Type[H11Protocol]:
    """uvicorn's HTTP/1.1 with limits on slow and idle clients, because file descriptors are limited.

    The headers of a request, and the rest of a refused body, have `timeout_s` seconds from the first byte. A request
    has the same time for its body, and the same for its answer. A client that takes none of an answer for `_TO_TAKE_S`
    is closed; one that is slow is not. A connection more than `most` closes the one that has waited for its client for
    longest, else the one that has been busy for longest. uvicorn itself answers 503 instead, to any request.
    """
    whole_s = 2 * timeout_s + _TO_TAKE_S
    opened: Dict[Patient, None] = {}  # in the order in which they began to wait or to be busy, the longest first

    class Patient(H11Protocol):
        _due: Optional[asyncio.TimerHandle] = None
        _busy = False  # with a request
        _silent: Optional[asyncio.TimerHandle] = None  # None: nothing came or went for `_SILENT_S`
        _unsent = 0  # bytes in the buffer of what is sent, when it was last looked at

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.conn = _Connection(h11.SERVER)
            transport.max_size = _READ_BYTES  # type: ignore[attr-defined]  # of asyncio's transports; 256 KiB else
            transport.set_write_buffer_limits(0)  # nothing more is taken of an answer until it is empty
            self._wait(timeout_s)
            self._stirred()
            opened[self] = None
            if len(self.connections) > most:
                # Of clients that pipeline without an end none waits.
                waiting = (one for one in opened if one.waits_for_client)
                oldest = next(waiting, next(iter(opened)))
                del opened[oldest]
                oldest.transport.abort()

        @property
        def waits_for_client(self) -> bool:
            """Whether it has had no request, a part of one, or an answer that the client does not read, for a while."""
            cycle = self.cycle
            answering = cycle is not None and not cycle.response_complete and not cycle.more_body
            return self._silent is None and (not answering or self.transport.get_write_buffer_size() > 0)

        def connection_lost(self, exc: Optional[Exception]) -> None:
            self._wait(None)
            self._fell_silent()
            opened.pop(self, None)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait_for_taking()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stirred()
            begun = bool(self.conn.trailing_data[0])  # of the next request, which came before the answer was taken
            self._wait(whole_s if self._busy else timeout_s if begun else None)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            self._stirred()
            super().data_received(data)
            if self.cycle is not before:
                self._request_changed()
            elif self._due is None:
                self._wait(timeout_s)

        def send_400_response(self, msg: str) -> None:
            """Name what h11 found wrong, as a missing `Host`; its sender may read a few bytes of the request there."""
            if self.cycle is not None:
                self.cycle.disconnected = True  # its body never ends: whatever the application answers is not sent
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # it was answered before its body went wrong
                self.transport.close()
                return
            why = f"{msg} {sys.exc_info()[1]}".encode("ascii", "replace").decode("ascii")
            try:
                super().send_400_response(why)
            except h11.LocalProtocolError:  # to HEAD: the headers were sent, and no body may follow
                self.transport.close()

        def on_response_complete(self) -> None:
            self._stirred()
            super().on_response_complete()  # which may start with the next request
            self._request_changed()

        def _request_changed(self) -> None:
            was_busy, self._busy = self._busy, self.cycle is not None and not self.cycle.response_complete
            if self.transport.get_write_buffer_size():  # a small answer
                self._wait_for_taking()
            else:
                self._wait(whole_s if self._busy else None)
            if self.transport.is_closing():
                opened.pop(self, None)
            elif not (was_busy and self._busy):  # with pipelined requests, it is as busy as before
                opened.pop(self, None)
                opened[self] = None

        def _stirred(self) -> None:
            """Note that something came or went.

            By a timer, not by a time: bytes that came while the loop was slow are read before timers run.
            """
            self._fell_silent()
            self._silent = self.loop.call_later(_SILENT_S, self._fell_silent)

        def _fell_silent(self) -> None:
            if self._silent is not None:
                self._silent.cancel()
                self._silent = None

        def _wait(self, seconds: Optional[float]) -> None:
            if self._due is not None:
                self._due.cancel()
            self._due = None if seconds is None else self.loop.call_later(seconds, self._give_up)

        def _wait_for_taking(self) -> None:
            self._unsent = self.transport.get_write_buffer_size()
            self._wait(_TO_TAKE_S)

        def _give_up(self) -> None:
            unsent = self.transport.get_write_buffer_size()
            if not unsent:
                self.transport.close()
            elif unsent < self._unsent:
                self._wait_for_taking()
            else:  # the client reads nothing, so it would never become empty
                self.transport.abort()

    return Patient


class Server(uvicorn.Server):
    """uvicorn server that goes on answering for a while after SIGTERM, and notifies systemd."""

    def __init__(
        self, app: Middleware, settings: Settings, sock: socket.socket, logger: logging.Logger, *, uds: Optional[Path]
    ) -> None:
        self._uds = uds
        self._controls = app.controls
        self._drain_s = settings.drain_s
        self._answer_s = settings.timeout_s + _AFTER_DRAIN_S
        self._sock = sock
        self._logger = logger
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._arrived: List[int] = []
        self._heeded = 0  # of them
        super().__init__(
            uvicorn.Config(
                app,
                http=patient(settings.timeout_s, most_connections()),
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                # No connection may remain by then: uvicorn would cancel its request, and log a traceback.
                timeout_graceful_shutdown=int(self._answer_s + _AFTER_GIVING_UP_S) + 2,
            )
        )

    @property
    def ended_by(self) -> int:
        """The first signal; 0 without one."""
        return self._arrived[0] if self._arrived else 0

    async def shutdown(self, sockets: Any = None) -> None:
        if self._uds is not None:
            _remove(self._uds)
        await super().shutdown(sockets=sockets)

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        logs.event(self._logger, logging.INFO, "listening", address=self._sock.getsockname())
        url = page_url(self._sock)
        if url is not None and sys.stderr.isatty():
            sys.stderr.write(f"open {url} to try it; Ctrl-C ends\n")
        notify("READY=1")
        self._loop = asyncio.get_running_loop()
        self._heed()

    def handle_exit(self, sig: int, frame: Optional[FrameType]) -> None:
        """Remember a signal; the event loop heeds it. A handler that raised or wrote could break what it interrupts."""
        self._arrived.append(sig)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heed)

    def _heed(self) -> None:
        """The first signal begins to drain, SIGINT without waiting for balancers. The second ends at once."""
        assert self._loop is not None
        before, self._heeded = self._heeded, len(self._arrived)
        if not before and self._heeded:
            self._controls.drain()
            self._loop.call_later(self._drain_s if self.ended_by == signal.SIGTERM else 0.0, self._close)
            with contextlib.suppress(OSError):
                notify("STOPPING=1")
        if before < 2 <= self._heeded:
            self._close()
            self._give_up()

    def _close(self) -> None:
        """Listen no longer; what has begun is answered."""
        assert self._loop is not None
        if not self.should_exit:
            self.should_exit = True
            self._loop.call_later(self._answer_s, self._give_up)

    def _give_up(self) -> None:
        """Refuse what is not answered, and close the connections of clients that neither send nor read."""
        assert self._loop is not None
        self._controls.give_up()
        self._loop.call_later(_AFTER_GIVING_UP_S, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
