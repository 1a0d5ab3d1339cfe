"""What `serve` loses when it stops: SIGTERM at random moments of its start, and a rollout under load.

    python benchmarks/stopping.py PROGRAM... [--starts 1000] [--requests 10000] [--rate 200] [--clients 50]

PROGRAM is what comes before the verb: `PREFIX/bin/NAME`, or `sh FILE.edgepack`. A start has to end with 0 or 143. In
the rollout two servers answer behind a round-robin client with keep-alive connections. Again and again a third one
starts, the oldest gets SIGTERM, and only two seconds later the client sends it no more, as with the endpoints of a
Service. A request is lost if it is not answered with 200; none is repeated. Ends in one JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

_ENDPOINT_S: Final = 2.0  # until a balancer sends nothing more to a server that stops
_BODY: Final = json.dumps({"text": "房间很大，服务也很好"}).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="+")
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random.seed(options.seed)
    found: dict[str, Any] = {}
    if options.starts:
        found["starts"] = starts(options.program, options.starts)
    if options.requests:
        found["rollout"] = Rollout(options.program).run(options.requests, options.rate, options.clients)
    print(json.dumps(found))


def start(program: list[str]) -> subprocess.Popen[str]:
    line = [*program, "serve", "--port", "0", "--log-level", "info"]
    return subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8")


def address(server: subprocess.Popen[str]) -> tuple[str, int]:
    """Where it listens, as soon as it does. What it logs from then on is read and dropped."""
    assert server.stderr is not None
    for text in server.stderr:
        line = json.loads(text) if text.startswith("{") else {}
        if line.get("event") == "listening":
            threading.Thread(target=server.stderr.read, daemon=True).start()
            host, port = line["address"]
            return host, port
    raise SystemExit("the server did not start")


def starts(program: list[str], count: int) -> dict[str, Any]:
    """Exit codes of servers that get SIGTERM at a random moment until they listen. -9: it had to be killed."""
    lasted = []
    for _ in range(3):
        begin = time.monotonic()
        with start(program) as server:
            address(server)
            lasted.append(time.monotonic() - begin)
            server.kill()
    whole_s = statistics.median(lasted)
    codes: Counter[int] = Counter()
    for number in range(count):
        with start(program) as server:
            moment_s = random.uniform(0, whole_s)
            time.sleep(moment_s)
            server.send_signal(signal.SIGTERM)
            try:
                server.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
            code = server.wait()
            codes[code] += 1
            # The default of a signal, before the program could choose: a shell calls it 143.
            if code not in (0, 143, -signal.SIGTERM):
                print(f"try {number}, after {moment_s * 1e3:.0f} ms: exit code {code}", flush=True)
    return {"start_s": round(whole_s, 3), "exit_codes": {str(code): n for code, n in sorted(codes.items())}}


class Rollout:
    """Servers, and clients that send to each of them in turn."""

    def __init__(self, program: list[str]) -> None:
        self._program = program
        self._endpoints: list[tuple[str, int]] = []
        self._turn = 0
        self._lock = threading.Lock()
        self._lost: Counter[str] = Counter()
        self._seconds: list[float] = []
        self._kept = threading.local()

    def run(self, requests: int, rate: float, clients: int) -> dict[str, Any]:
        servers = [start(self._program) for _ in range(2)]
        self._endpoints = [address(server) for server in servers]
        ended = threading.Event()
        codes: list[int] = []

        def replace() -> None:
            while not ended.is_set():
                servers.append(start(self._program))
                self._endpoints = [*self._endpoints, address(servers[-1])]
                servers[0].send_signal(signal.SIGTERM)
                time.sleep(_ENDPOINT_S)
                self._endpoints = self._endpoints[1:]
                codes.append(servers.pop(0).wait())

        rollouts = threading.Thread(target=replace)
        rollouts.start()
        begin = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            for number in range(requests):
                time.sleep(max(0.0, begin + number / rate - time.monotonic()))
                pool.submit(self._ask)
        lasted_s = time.monotonic() - begin
        ended.set()
        rollouts.join()
        for server in servers:
            server.terminate()
            codes.append(server.wait())
        spent = sorted(self._seconds)
        return {
            "requests": requests,
            "lost": dict(self._lost),
            "stopped": len(codes),
            "exit_codes": sorted(set(codes)),
            "per_second": round(requests / lasted_s, 1),
            "p50_ms": round(spent[len(spent) // 2] * 1e3, 2),
            "p99_ms": round(spent[len(spent) * 99 // 100] * 1e3, 2),
        }

    def _ask(self) -> None:
        """One request over this thread's connection to the server whose turn it is."""
        with self._lock:
            self._turn += 1
            endpoint = self._endpoints[self._turn % len(self._endpoints)]
        begin = time.monotonic()
        try:
            outcome = self._post(endpoint)
        except (OSError, http.client.HTTPException) as error:
            kept: dict[Any, http.client.HTTPConnection] = self._kept.__dict__
            kept.pop(endpoint).close()
            outcome = type(error).__name__
        with self._lock:
            self._seconds.append(time.monotonic() - begin)
            if outcome != "200":
                self._lost[outcome] += 1

    def _post(self, endpoint: tuple[str, int]) -> str:
        kept: dict[Any, http.client.HTTPConnection] = self._kept.__dict__
        if endpoint not in kept:
            kept[endpoint] = http.client.HTTPConnection(*endpoint, timeout=30)
        connection = kept[endpoint]
        connection.request("POST", "/predict", _BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()  # after `Connection: close` the next request connects again
        answer.read()
        return str(answer.status)


if __name__ == "__main__":
    main()
