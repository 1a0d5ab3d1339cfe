"""What `serve` does around uvicorn."""

from __future__ import annotations

import io
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.serve import logs, server

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def test_the_watchdog_of_another_process_is_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        for asked in ({}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}):
            server.watchdog({**told, **asked})()
        with pytest.raises(BlockingIOError):
            systemd.recv(64)
        for asked in ({"WATCHDOG_USEC": "1"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid())}):
            server.watchdog({**told, **asked})()
            assert systemd.recv(64) == b"WATCHDOG=1"
    server.watchdog({**told, "WATCHDOG_USEC": "1"})()  # nobody listens: no error ends the watch


def test_metrics_need_a_port_of_their_own() -> None:
    with server.listening(server.Where(port=0)) as served:
        where = server.Where(metrics_host="127.0.0.2", metrics_port=served.getsockname()[1])
        with pytest.raises(UsageError, match="the port of the server"), server._metrics(where, served):
            pass


def test_a_library_says_the_same_thing_once() -> None:
    stream = io.StringIO()
    logs.configure("info", stream)
    for number in range(1000):
        logging.getLogger("asyncio").error(f"socket.accept() out of system resource\nsocket: {number}")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")])
def test_the_page_has_an_address_for_a_browser(host: str, shown: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.bind((host, 0))
        assert server.page_url(sock) == f"http://{shown}:{sock.getsockname()[1]}/"


def test_a_socket_that_somebody_else_holds_open_is_an_error_and_no_wait(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as planted, socket.socket(socket.AF_UNIX) as first:
        planted.bind(str(tmp_path / "s"))
        planted.listen(0)
        first.connect(str(tmp_path / "s"))  # the backlog is full
        with pytest.raises(OSError, match="Address already in use"):
            server._unix(tmp_path / "s")


def test_a_socket_in_the_file_system_has_no_page_for_a_browser(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        assert server.page_url(sock) is None


@pytest.mark.parametrize("host", ["192.0.2.1", "not an address"])
def test_a_bad_address_is_not_blamed_on_the_port(host: str) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught, server.listening(server.Where(host, 0)):
        pass
    assert caught.value.what == f"this server cannot listen on {host}"
    assert caught.value.fix == "give an address of this machine"


def test_a_port_in_use_is_named() -> None:
    with server.listening(server.Where(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(EnvironmentUnfitError) as caught, server.listening(server.Where(port=port)):
            pass
    assert (f"127.0.0.1 port {port}" in caught.value.what, caught.value.fix) == (True, "choose another port")


class _Timers:
    """A loop that runs its timers in `pass_by`."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, Callable[[], None], mock.Mock]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> mock.Mock:
        self._timers.append((seconds, call, mock.Mock()))
        return self._timers[-1][2]

    def pass_by(self, seconds: float) -> None:
        due = [timer for timer in self._timers if timer[0] <= seconds and not timer[2].cancel.called]
        for _, call, _ in due:
            call()


class _Clients:
    """Connections of a server that has at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.timers = _Timers()
        self._made = server.patient(600.0, most)
        self._config = uvicorn.Config(mock.Mock(), lifespan="off", log_config=None)
        self._state = ServerState()

    def connect(self) -> Any:
        client = self._made(
            config=self._config, server_state=self._state, app_state={}, _loop=cast("AbstractEventLoop", self.timers)
        )
        transport = mock.Mock()
        transport.get_write_buffer_size.return_value = 0
        transport.is_closing.return_value = False
        client.connection_made(transport)
        return client

    def connect_and_ask(self) -> Any:
        client = self.connect()
        client.cycle = SimpleNamespace(response_complete=False, more_body=False)
        client._request_changed()
        return client


def _closed(*clients: Any) -> list[bool]:
    return [client.transport.abort.called for client in clients]


def test_a_new_client_is_not_closed_where_all_others_are_answered() -> None:
    clients = _Clients(2)
    first, second = clients.connect_and_ask(), clients.connect_and_ask()
    third = clients.connect()
    assert _closed(first, second, third) == [True, False, False]


def test_a_client_is_not_closed_before_its_request_could_be_read() -> None:
    clients = _Clients(2)
    first, second = clients.connect_and_ask(), clients.connect_and_ask()
    third, fourth = clients.connect(), clients.connect()
    assert _closed(first, second, third, fourth) == [True, True, False, False]


def test_who_pipelines_is_no_newer_after_each_answer() -> None:
    clients = _Clients(2)
    pipelining, asking = clients.connect_and_ask(), clients.connect_and_ask()
    pipelining.cycle = SimpleNamespace(response_complete=False, more_body=False)  # the next request, which was there
    pipelining._request_changed()
    clients.connect()
    assert _closed(pipelining, asking) == [True, False]


@pytest.mark.parametrize("unread", [0, 1])
def test_who_is_silent_gives_way_before_who_is_answered(unread: int) -> None:
    clients = _Clients(2)
    asking, silent = clients.connect_and_ask(), clients.connect()
    if unread:  # an answer that it does not read
        silent.cycle = SimpleNamespace(response_complete=False, more_body=False)
        silent.transport.get_write_buffer_size.return_value = unread
    clients.timers.pass_by(1.0)
    clients.connect()
    assert _closed(asking, silent) == [False, True]


def test_who_takes_some_of_an_answer_is_kept_and_who_takes_nothing_is_not() -> None:
    clients = _Clients(2)
    slow, deaf = clients.connect_and_ask(), clients.connect_and_ask()
    for client in (slow, deaf):
        client.transport.get_write_buffer_size.return_value = 1000
        client.pause_writing()
    for left in (999, 998):
        slow.transport.get_write_buffer_size.return_value = left
        clients.timers.pass_by(server._TO_TAKE_S)
        assert _closed(slow, deaf) == [False, True]
    slow.transport.get_write_buffer_size.return_value = 0
    slow.resume_writing()
    slow.cycle.response_complete = True
    slow._request_changed()
    clients.timers.pass_by(server._TO_TAKE_S)  # a client with its whole answer may ask again
    assert (_closed(slow), slow.transport.close.called) == ([False], False)


def test_who_does_not_take_a_small_answer_is_closed() -> None:
    client = _Clients(1).connect_and_ask()
    client.transport.get_write_buffer_size.return_value = 1
    client.cycle.response_complete = True
    client._request_changed()
    client.loop.pass_by(server._TO_TAKE_S)
    assert _closed(client) == [True]
