"""`serve` as a process: sockets, signals, draining, slow clients, systemd's protocol."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.served import HOLDING_PYTHON, RUNTIME, SLEEPING, Served, served
from tests.unit.runtime.tiny_model import write_model_folder

pytestmark = pytest.mark.integration
TOKEN = "a-token-for-the-test"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model_folder(tmp_path / "hotel")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for tests that only ask it."""
    with served("--model", write_model_folder(tmp_path_factory.mktemp("asked") / "hotel")) as server:
        yield server


def ask(url: str, document: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON body of a GET, or of a POST of `document`."""
    body = None if document is None else json.dumps(document).encode()
    given = {"Content-Type": "application/json", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, given), timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def over(path: Path, target: str) -> int:
    """Status of a GET over a Unix socket."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", target)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_answers_and_ends_when_it_is_told_to(model: Path) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with served("--model", model) as server:
            assert ask(server.url + "/predict", {"text": "店很好"}) == (200, {"label": "good", "score": 0.952574})
            assert ask(server.url + "/readyz")[0] == 200
            assert server.stop(number) == code
            assert [line["event"] for line in server.lines][:2] == ["ready", "listening"]
            assert server.lines[-1]["event"] == "drained"


_HALF = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{"


@pytest.mark.parametrize("said", [b"", b"GET / HT", _HALF], ids=["nothing", "headers", "body"])
def test_who_waits_for_nothing_keeps_nobody_from_asking(model: Path, said: bytes) -> None:
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (300, 300))
    with served("--model", model, "--timeout-s", "60", preexec_fn=few) as server, contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(tuple(server.listening()), 30)).send(said)
        for _ in range(3):
            assert ask(server.url + "/healthz")[0] == 200
            assert ask(server.url + "/predict", {"text": "店很好"})[0] == 200
        server.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(urllib.error.URLError, ConnectionError):  # until it listens no longer
            while ask(server.url + "/healthz")[0] == 200:
                pass
        if server.process.poll() is None:  # it waits for bodies that have begun
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert len([line for line in server.lines if line["event"] != "request"]) < 20


def test_nor_does_who_reads_no_answer(model: Path, tmp_path: Path) -> None:
    path, few = tmp_path / "s", partial(resource.setrlimit, resource.RLIMIT_NOFILE, (200, 200))
    limits = ["--uds", path, "--timeout-s", "600"]
    with served("--model", model, *limits, preexec_fn=few) as server, contextlib.ExitStack() as stack:
        server.listening()
        for _ in range(100):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(path))
            connection.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        end = time.monotonic() + 60
        while time.monotonic() < end:  # until the answers that nobody reads fill the buffers
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                assert over(path, "/healthz") == 200
                break
        else:
            pytest.fail("nobody was answered")


def test_who_takes_no_answer_is_closed_and_who_is_slow_gets_it(model: Path, tmp_path: Path) -> None:
    body = json.dumps({"texts": ["好"] * 10_000, "scores": True}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    limits = ["--max-texts", "10000", "--queue", "30000", "--max-body-kib", "1024", "--timeout-s", "60"]
    with (
        served("--model", model, "--uds", tmp_path / "s", *limits) as server,
        socket.socket(socket.AF_UNIX) as deaf,
        socket.socket(socket.AF_UNIX) as slow,
    ):
        server.listening()
        for connection in (deaf, slow):
            connection.connect(str(tmp_path / "s"))
            connection.sendall(head.encode() + body)
        parts = []
        while not parts or parts[-1]:  # longer than a client has that takes nothing
            parts.append(slow.recv(1 << 15))
            time.sleep(0.5)
        answer = b"".join(parts).partition(b"\r\n\r\n")[2]
        assert len(parts) > 15
        assert len(json.loads(answer)["predictions"]) == 10_000
        closed = select.poll()
        closed.register(deaf, 0)
        assert closed.poll(10_000)


def test_what_waits_is_answered_before_it_ends(model: Path) -> None:
    limits = ["--max-batch", "1", "--queue", "5000", "--max-texts", "5000", "--timeout-s", "60"]
    limits += ["--max-body-kib", "256"]
    with served("--model", model, *limits) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server.url + "/predict", {"texts": ["好差"] * 5000})
        end = time.monotonic() + 30
        while not queued(server.url):
            assert time.monotonic() < end
        server.process.send_signal(signal.SIGTERM)
        status, answer = asked.result()
        assert (status, len(answer["predictions"])) == (200, 5000)
        assert server.process.wait(30) == 0
        with pytest.raises(urllib.error.URLError):  # nobody listens any more
            ask(server.url + "/healthz")


def test_after_sigterm_it_answers_until_balancers_have_learnt_of_it(model: Path) -> None:
    with served("--model", model, "--drain-s", "1.5") as server:
        kept = http.client.HTTPConnection(*server.listening(), timeout=30)
        idle = http.client.HTTPConnection(*server.listening(), timeout=30)
        for connection in (kept, idle):
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            assert (answer.status, answer.read() and answer.will_close) == (200, False)
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 30
        while ask(server.url + "/readyz")[0] != 503:  # a new connection each time
            assert time.monotonic() < end
        assert ask(server.url + "/predict", {"text": "店很好"})[0] == 200
        kept.request("POST", "/predict", '{"text": "店很好"}'.encode())
        answer = kept.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert server.process.wait(30) == 0
        idle.close()
        with pytest.raises(urllib.error.URLError):
            ask(server.url + "/healthz")


def test_it_answers_new_connections_for_as_long_as_it_drains(model: Path) -> None:
    with served("--model", model, "--drain-s", "600") as server:
        assert ask(server.url + "/readyz")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 1.0  # uvicorn looks ten times a second whether it shall end
        while time.monotonic() < end:
            assert ask(server.url + "/healthz")[0] == 200  # a new connection each time
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


@pytest.mark.parametrize(("signals", "code"), [(("SIGTERM", "SIGTERM"), 0), (("SIGINT", "SIGTERM"), 130)])
def test_a_second_signal_gives_up_what_waits(model: Path, signals: tuple[str, str], code: int) -> None:
    limits = ["--queue", "5000", "--max-texts", "5000", "--timeout-s", "600", "--drain-s", "600"]
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"
    with served("--model", model, *limits, hangs=SLEEPING) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server.url + "/predict", {"texts": ["好"] * 100})
        end = time.monotonic() + 30
        while not queued(server.url):
            assert time.monotonic() < end
        with socket.create_connection(tuple(server.listening()), 30) as slow:
            slow.sendall(head)  # and never the rest
            assert ask(server.url + "/healthz")[0] == 200
            server.process.send_signal(getattr(signal, signals[0]))
            with contextlib.suppress(urllib.error.URLError):  # after SIGINT nobody listens
                while ask(server.url + "/readyz")[0] != 503:
                    assert time.monotonic() < end
            assert server.stop(getattr(signal, signals[1])) == code
        status, answer = asked.result()
        assert (status, answer["error"]["code"]) == (503, "draining")
        assert {line["event"] for line in server.lines} == {"ready", "listening", "request", "drained"}
        assert (server.lines[-1]["event"], server.lines[-1]["given_up"]) == ("drained", 100)


def test_a_model_that_hangs_is_waited_for_no_longer_than_for_an_answer(model: Path) -> None:
    with (
        served("--model", model, "--timeout-s", "2", hangs=SLEEPING) as server,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(ask, server.url + "/predict", {"texts": ["好"] * 9})
        end = time.monotonic() + 30
        while not queued(server.url):
            assert time.monotonic() < end
        assert server.stop(signal.SIGTERM) == 0
        assert asked.result()[0] == 504
        assert {line["event"] for line in server.lines} == {"ready", "listening", "request", "drained"}


@pytest.mark.parametrize(("hangs", "code"), [(SLEEPING, 5), (HOLDING_PYTHON, 1)])
def test_a_server_whose_model_hangs_ends(model: Path, tmp_path: Path, hangs: str, code: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        limits = ["--timeout-s", "0.5", "--stuck-s", "2"]
        with served("--model", model, *limits, hangs=hangs, environment=environment) as server:
            server.listening()
            told = [systemd.recv(64) for _ in range(4)]
            assert (told.count(b"READY=1"), told.count(b"WATCHDOG=1")) == (1, 3)
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert ask(server.url + "/predict", {"text": "好"})[0] == 504
            while hangs == SLEEPING and ask(server.url + "/healthz")[0] == 200:
                assert server.process.poll() is None
            assert server.process.wait(60) == code
            server.close()
            assert any("stuck" in str(line) or "Timeout" in str(line) for line in server.lines)


def test_metrics_have_a_listener_of_their_own(model: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    limits = ["--token-file", tmp_path / "token", "--metrics-port", str(port)]
    with served("--model", model, *limits) as server:
        assert ask(server.url + "/predict", {"text": "好"}, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(server.url + "/metrics")[0] == 401
        assert ask(f"http://127.0.0.1:{port}/predict", {"text": "好"}, Authorization=f"Bearer {TOKEN}")[0] == 404
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            found = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    # https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
    for name in ("process_resident_memory_bytes", "process_start_time_seconds", "process_cpu_seconds"):
        assert found[name].samples[0].value > 0
    refused = {tuple(sorted(sample.labels.items())) for sample in found["edgepack_rejected"].samples}
    assert (("path", "/metrics"), ("reason", "unauthorized")) in refused
    assert found["edgepack_requests"].type == "counter"


def test_who_goes_away_is_not_computed(model: Path) -> None:
    limits = ["--max-batch", "1", "--queue", "10000", "--max-texts", "10000", "--timeout-s", "60"]
    limits += ["--max-body-kib", "1024"]
    with served("--model", model, *limits) as server:
        body = json.dumps({"texts": ["好差"] * 10000}).encode()
        with socket.create_connection(tuple(server.listening()), 30) as leaving:
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            leaving.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            end = time.monotonic() + 30
            while not queued(server.url):
                assert time.monotonic() < end
        end = time.monotonic() + 30
        while queued(server.url):
            assert time.monotonic() < end
        assert ask(server.url + "/predict", {"text": "店很好"})[0] == 200
        assert server.stop(signal.SIGTERM) == 0
        (line,) = [line for line in server.lines if line.get("status") == 499]
        assert (line["code"], line["texts"]) == ("client_gone", 10000)
        answered = [line["batch"] for line in server.lines if line.get("status") == 200 and line["path"] == "/predict"]
        assert answered == [1]


def queued(url: str) -> float:
    """Texts that wait."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    (waiting,) = [line.split()[1] for line in lines if line.startswith("edgepack_queued_texts ")]
    return float(waiting)


def test_the_address_must_be_a_loopback_without_a_token(model: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "edgepack_runtime",
        "serve",
        "--model",
        str(model),
        "--port",
        "0",
        "--host",
        "0.0.0.0",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{RUNTIME}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 2
    assert "can be reached from other machines" in done.stderr


def test_with_a_token_it_may_listen_anywhere(model: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with served("--model", model, "--host", "0.0.0.0", "--token-file", tmp_path / "token") as server:
        assert ask(server.url + "/predict", {"text": "好"})[0] == 401
        assert ask(server.url + "/predict", {"text": "好"}, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(server.url + "/healthz")[0] == 200
        commands = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert TOKEN.encode() not in commands
        server.stop(signal.SIGTERM)
        assert not [line for line in server.lines if TOKEN in json.dumps(line)]


def test_a_port_that_is_taken_is_exit_4(model: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        served("--model", model, "--port", str(taken.getsockname()[1])) as server,
    ):
        assert server.process.wait(60) == 4


def test_a_unix_socket(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    for left_behind in (False, True):  # by a server that was killed
        with served("--model", model, "--uds", path) as server:
            server.listening()
            assert over(path, "/readyz") == 200
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            with served("--model", model, "--uds", path) as second:
                assert second.process.wait(60) == 4  # somebody answers there
            assert over(path, "/readyz") == 200
            if left_behind:
                server.stop(signal.SIGTERM)
                assert not path.exists()
            else:
                server.process.kill()
    path.write_text("a file of somebody")
    with served("--model", model, "--uds", path) as server:
        assert server.process.wait(60) == 4
    assert path.read_text() == "a file of somebody"


def test_who_stops_leaves_the_socket_of_who_comes_next(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with served("--model", model, "--uds", path) as server:
        server.listening()
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(str(path))
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            slow.sendall(head + b"Content-Length: 15\r\n\r\n{")  # what is begun is waited for
            assert over(path, "/healthz") == 200
            server.process.send_signal(signal.SIGTERM)
            while path.exists():
                time.sleep(0.01)
            with served("--model", model, "--uds", path) as second:
                second.listening()
                slow.sendall(b'"text": "\xe5\xa5\xbd"}')
                assert slow.recv(4096).startswith(b"HTTP/1.1 200")
                assert server.process.wait(30) == 0
                assert over(path, "/healthz") == 200


def test_a_socket_that_is_handed_over(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        with served("--model", model, "--fd", str(number), pass_fds=[number]) as server:
            assert server.listening() == list(listening.getsockname())
            assert ask(server.url + "/healthz")[0] == 200


def test_systemd_is_told(model: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        with served("--model", model, environment={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as server:
            assert systemd.recv(64) == b"READY=1"
            assert ask(server.url + "/healthz")[0] == 200  # it does answer when it says so
            server.stop(signal.SIGTERM)
            assert systemd.recv(64) == b"STOPPING=1"


def test_who_says_nothing_is_not_waited_for(model: Path) -> None:
    with served("--model", model, "--timeout-s", "0.2") as server:
        host, port = server.listening()
        with socket.create_connection((host, port), 30) as silent, socket.create_connection((host, port), 30) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            assert silent.recv(100) == b""
            assert slow.recv(100) == b""
        with socket.create_connection((host, port), 30) as half:
            head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            half.sendall(head + b"Content-Length: 9\r\n\r\n{")
            assert half.recv(100).startswith(b"HTTP/1.1 408")


def test_nor_is_who_was_answered_once(model: Path) -> None:
    """Neither half a second request, nor the rest of a body that was refused, nor an answer that nobody takes."""
    once = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    refused = b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    with served("--model", model, "--timeout-s", "0.2") as server:
        for first, then in ((once, b"GET /healthz HTTP/1.1\r\nHo"), (refused, b"x")):
            with socket.create_connection(tuple(server.listening()), 30) as slow:
                slow.sendall(first)
                assert slow.recv(4096).startswith(b"HTTP/1.1 ")
                with contextlib.suppress(ConnectionError):
                    slow.sendall(then)
                    while slow.recv(4096):
                        pass
        with socket.create_connection(tuple(server.listening()), 30) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with pytest.raises(ConnectionError):  # after two timeouts and five seconds
                while True:
                    deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        assert ask(server.url + "/healthz")[0] == 200


def test_what_is_no_http_does_no_harm(model: Path) -> None:
    with served("--model", model) as server:
        host, port = server.listening()
        for garbage in (b"\x16\x03\x01\x02\x00" * 50, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"x" * 100_000):
            with socket.create_connection((host, port), 30) as connection:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):  # it need not read all of it before it closes
                    while connection.recv(65536):
                        pass
        assert ask(server.url + "/healthz")[0] == 200
        for path, first in (("/predict", b"HTTP/1.1 400 "), ("/none", b"HTTP/1.1 404 ")):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            with socket.create_connection((host, port), 30) as connection:
                connection.sendall(head.encode())
                answer = connection.recv(65536) if path == "/none" else b""  # before its body has come
                connection.sendall(b"no chunk\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while received := connection.recv(65536):
                        answer += received
                assert answer.startswith(first)
        assert ask(server.url + "/healthz")[0] == 200
        assert not [line for line in server.lines if line["level"] == "error"]


def test_bodies_in_tiny_chunks_do_not_hold_up_others(asked: Served) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(tuple(asked.listening()), 30) as connection:
        connection.sendall(head + b"1\r\n \r\n" * 1000)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, b"too small" in answer.read()) == (400, True)
    for size, number in ((1, 100), (80, 500)):  # few are answered, and many of some size
        chunks = b"%x\r\n%s\r\n" % (size, b" " * size) * number
        with socket.create_connection(tuple(asked.listening()), 30) as connection:
            connection.sendall(head + chunks + _CHUNKED)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200


_JSON = '{"text": "店很好"}'.encode()
_CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_JSON), _JSON)


@pytest.mark.parametrize(
    ("head", "body", "status", "said"),
    [
        ("GET /healthz HTTP/1.0", b"", 200, b"alive"),  # HAProxy's httpchk
        ("OPTIONS / HTTP/1.0", b"", 204, b"allow: "),  # its default
        ("GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example", b"", 200, b"alive"),
        ("GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost", b"", 421, b"evil.example"),
        ("GET /healthz HTTP/1.1", b"", 400, b"Host"),
        ("GET //healthz HTTP/1.1\r\nHost: localhost", b"", 404, b"ask for /healthz"),
        (f"POST /predict HTTP/1.0\r\nContent-Length: {len(_JSON)}", _JSON, 200, b"good"),
        ("POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked", _CHUNKED, 200, b"good"),
        ("POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked", _CHUNKED, 400, b"chunked"),
        ("HEAD /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked", b"zz\r\n", 400, b"close"),
        # Java's HttpClient offers HTTP/2 so.
        (f"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
         f"HTTP2-Settings: AAEAAEAA\r\nContent-Length: {len(_JSON)}", _JSON, 200, b"good"),
    ],
)  # fmt: skip
def test_what_clients_send_is_answered_or_named(
    asked: Served, head: str, body: bytes, status: int, said: bytes
) -> None:
    with socket.create_connection(tuple(asked.listening()), 30) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        answer = http.client.HTTPResponse(connection, method=head.split()[0])
        answer.begin()
        assert answer.status == status
        assert said in answer.read() or said in str(answer.headers).lower().encode()
        assert not [line for line in asked.lines if "upgrade" in line["event"] or line["level"] == "error"]


def test_who_waits_for_100_continue_gets_it_or_the_refusal(asked: Served) -> None:
    head = f"HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(_JSON)}\r\nExpect: 100-continue\r\n\r\n"
    for path, first in (("/predict", b"HTTP/1.1 100 "), ("/none", b"HTTP/1.1 404 ")):
        with socket.create_connection(tuple(asked.listening()), 30) as connection:
            connection.sendall(f"POST {path} {head}".encode())
            assert connection.recv(4096).startswith(first)
            if path == "/predict":
                connection.sendall(_JSON)
                assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_sigterm_while_it_starts_ends_it(model: Path) -> None:
    for number in range(12):
        with served("--model", model) as server:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(number * 0.05)
            assert server.stop(signal.SIGTERM) in (0, 143, -signal.SIGTERM)


def test_without_the_libraries_it_says_how_to_get_them(model: Path, tmp_path: Path) -> None:
    (tmp_path / "hide").mkdir()
    line = "import sys; from edgepack_runtime.cli import main, serve_command;"
    line += "serve_command.find_spec = lambda name: None; sys.exit(main.main())"
    environment = {**os.environ, "PYTHONPATH": f"{RUNTIME}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", line, "serve", "--model", str(model)],
        capture_output=True, text=True, check=False, env=environment, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "`serve` needs starlette" in done.stderr
