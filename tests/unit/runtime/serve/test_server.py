"""What `serve` does around uvicorn."""

from __future__ import annotations

import io
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError
from edgepack_runtime.serve import logs, server
from edgepack_runtime.serve.settings import Settings


@pytest.fixture(autouse=True)
def sigterm_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_server_that_loads_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(settings: Settings) -> None:
        """As the first import of ONNX Runtime does: it makes an error of its own of what a handler raises."""
        try:
            signal.raise_signal(signal.SIGTERM)  # to this thread: by os.kill another one may get it, later
        except BaseException as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(server.application, "load", load)
    with pytest.raises(SystemExit) as ended:
        server._loaded(Settings())
    assert ended.value.code == 0


def test_a_model_that_cannot_be_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(settings: Settings) -> None:
        raise StageFailedError("it cannot be loaded")

    monkeypatch.setattr(server.application, "load", load)
    with pytest.raises(StageFailedError):
        server._loaded(Settings())


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
    assert caught.value.fix == "give an address of this machine: --host ADDRESS"


def test_a_port_in_use_is_named() -> None:
    with server.listening(server.Where(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(EnvironmentUnfitError) as caught, server.listening(server.Where(port=port)):
            pass
    assert (f"127.0.0.1 port {port}" in caught.value.what, caught.value.fix) == (True, "choose another: --port N")


async def test_a_new_client_is_not_closed_where_all_others_are_answered() -> None:
    config = uvicorn.Config(mock.Mock(), lifespan="off", log_config=None)
    made = server.patient(600.0, 2)
    state = ServerState()
    clients = [made(config=config, server_state=state, app_state={}) for _ in range(3)]
    for number, client in enumerate(clients):
        transport = mock.Mock()
        transport.get_write_buffer_size.return_value = 0
        transport.is_closing.return_value = False
        client.connection_made(transport)
        if number < 2:  # answers one request after another, which the client sent at once
            client.cycle = SimpleNamespace(response_complete=False, more_body=False)
    assert [client.transport.abort.called for client in clients] == [True, False, False]
    for client in clients:
        client._wait(None)
