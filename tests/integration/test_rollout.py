"""Servers that are replaced one after the other while clients ask them in turn, as endpoints of a balancer are."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.served import served
from tests.unit.runtime.tiny_model import write_model_folder

pytestmark = [pytest.mark.integration, pytest.mark.sweep]
CLIENTS = 20  # with a keep-alive connection to each server
PAUSE_S = 0.1  # of a client between two requests: 200 requests per second in all
REPLACED = 10
ENDPOINT_S = 2.0  # until a balancer sends nothing more to a server that stops
BODY = '{"text": "店很好"}'.encode()


class Clients:
    """Threads that ask the servers at `endpoints` in turn. No request is repeated."""

    def __init__(self) -> None:
        self.endpoints: list[tuple[str, int]] = []
        self.outcomes: Counter[str] = Counter()
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def ask_until_the_end(self, turn: int) -> None:
        kept: dict[tuple[str, int], http.client.HTTPConnection] = {}
        while not self.ended.wait(PAUSE_S):
            turn += 1
            endpoints = self.endpoints
            endpoint = endpoints[turn % len(endpoints)]
            connection = kept.setdefault(endpoint, http.client.HTTPConnection(*endpoint, timeout=30))
            try:
                connection.request("POST", "/predict", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()  # after `Connection: close` the next request connects again
                answer.read()
                outcome = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                kept.pop(endpoint).close()
                outcome = type(error).__name__
            with self._lock:
                self.outcomes[outcome] += 1
        for connection in kept.values():
            connection.close()


def test_a_rollout_under_load_loses_no_request(tmp_path: Path) -> None:
    model, clients = write_model_folder(tmp_path / "hotel"), Clients()
    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as pool:
        servers = [stack.enter_context(served("--model", model, "--drain-s", "5")) for _ in range(2)]
        clients.endpoints = [tuple(server.listening()) for server in servers]
        try:
            asking = [pool.submit(clients.ask_until_the_end, turn) for turn in range(CLIENTS)]
            for _ in range(REPLACED):
                servers.append(stack.enter_context(served("--model", model, "--drain-s", "5")))
                clients.endpoints = [*clients.endpoints, tuple(servers[-1].listening())]
                oldest = servers.pop(0)
                oldest.process.send_signal(signal.SIGTERM)
                time.sleep(ENDPOINT_S)
                clients.endpoints = clients.endpoints[1:]
                assert oldest.process.wait(30) == 0
        finally:
            clients.ended.set()
        for one in asking:
            one.result()
    assert set(clients.outcomes) == {"200"}
    assert clients.outcomes["200"] > CLIENTS * REPLACED
