"""`serve` under load from another process, over the loopback: throughput, latency, overload, and whether it leaks.

Starts the server on a model folder, asks it about a file of texts in several ways, and ends in one JSON line.

    python benchmarks/serve.py MODEL --texts FILE [--seconds 8] [--rounds 3] [--soak-minutes 10]

- closed: a number of connections, each asking again as soon as it is answered. That finds the most a server can do;
  its latencies leave out whatever would have arrived while it was slow.
- open: requests arrive at a rate, whether or not earlier ones were answered (Poisson, seeded); the latency of each
  counts from when it was due. The rates are shares of what the server without batching can do.
- overload: twice that rate; how many are shed with 429, and how soon /healthz answers meanwhile.
- soak: half that rate for minutes; errors, resident memory and open files over time.

All ways run in turns, each round on a fresh server. Server and client share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from edgepack_runtime.batch.inputs import read_texts
from edgepack_runtime.device import conditions
from edgepack_runtime.schema.fields import to_json

BATCHES: Final = (1, 8, 32)
CONNECTIONS: Final = (1, 8, 32)
LOADS: Final = (0.5, 0.8)
OVERLOAD: Final = 2.0
QUEUE: Final = 64  # texts that wait while the server is overloaded
MOST_CONNECTIONS: Final = 256
HEALTH_EVERY_S: Final = 0.02
SAMPLE_EVERY_S: Final = 10.0


class Connection(asyncio.Protocol):
    """One connection that sends a request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[int] | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) >= length and self._answer is not None and not self._answer.done():
            self._buffer = body[length:]
            self._answer.set_result(int(head[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)

    async def ask(self, request: bytes) -> int:
        """The status of the answer; 0 where the connection broke."""
        if self.transport.is_closing():
            return 0
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


class Tally:
    """Statuses, and the latency of every request that got 200."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.milliseconds: list[float] = []

    def add(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        if status == 200:
            self.milliseconds.append(seconds * 1e3)

    def figures(self, seconds: float) -> dict[str, Any]:
        """Answers a second and percentiles of their latency."""
        return {
            "answers_per_s": round(self.statuses[200] / seconds, 1),
            "p50_ms": percentile(self.milliseconds, 50),
            "p99_ms": percentile(self.milliseconds, 99),
            "n": self.statuses[200],
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that `percent` per cent do not exceed; null for none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 3)


def request(text: str) -> bytes:
    """A whole HTTP request."""
    body = json.dumps({"text": text}, ensure_ascii=False).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def connect(port: int) -> Connection:
    return (await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port))[1]


async def closed(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Tally:
    """Ask over `connections`, each again as soon as it was answered."""
    tally, end = Tally(), time.perf_counter() + seconds

    async def one(number: int) -> None:
        connection, at = await connect(port), number * 7919
        while (begin := time.perf_counter()) < end:
            tally.add(await connection.ask(requests[at % len(requests)]), time.perf_counter() - begin)
            at += 1
        connection.transport.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    return tally


async def opened(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> Tally:
    """Ask `rate` times a second, whatever becomes of the requests before."""
    tally, random_ = Tally(), random.Random(0)
    idle: deque[Connection] = deque()
    slots = asyncio.Semaphore(MOST_CONNECTIONS)
    tasks: set[asyncio.Task[None]] = set()

    async def one(body: bytes, due: float) -> None:
        async with slots:
            while idle and idle[-1].transport.is_closing():  # the server ends connections that idle for long
                idle.pop()
            connection = idle.pop() if idle else await connect(port)
            status = await connection.ask(body)
            tally.add(status, time.perf_counter() - due)
            if status and not connection.transport.is_closing():
                idle.append(connection)

    begin = due = time.perf_counter()
    for number in range(int(rate * seconds)):
        due += random_.expovariate(rate)
        if due - begin > seconds:
            break
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        task = asyncio.ensure_future(one(requests[number % len(requests)], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.transport.close()
    return tally


def overload(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> dict[str, Any]:
    """`opened` at more than can be answered, with /healthz asked all the time by a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        watching = pool.submit(watch_health, port, seconds)
        tally = asyncio.run(opened(port, requests, rate, seconds))
        health = watching.result()
    told = {"n": len(health), "p50_ms": percentile(health, 50), "p99_ms": percentile(health, 99), "max_ms": max(health)}
    return {"rate_per_s": round(rate, 1), **tally.figures(seconds), "healthz": told}


def watch_health(port: int, seconds: float) -> list[float]:
    """Milliseconds of one answer of /healthz after the other."""
    found: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port)
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"/healthz answered {answer.status}")
        found.append(round((time.perf_counter() - begin) * 1e3, 3))
        time.sleep(HEALTH_EVERY_S)
    connection.close()
    return found


async def soak(port: int, process: int, requests: Sequence[bytes], rate: float, minutes: float) -> dict[str, Any]:
    """`opened` for minutes, with memory and files of the server over time."""
    samples: list[tuple[float, int, int]] = []
    begin = time.perf_counter()

    async def watch() -> None:
        while True:
            samples.append((time.perf_counter() - begin, rss_kib(process), len(os.listdir(f"/proc/{process}/fd"))))  # noqa: PTH208
            await asyncio.sleep(SAMPLE_EVERY_S)

    watching = asyncio.ensure_future(watch())
    tally = await opened(port, requests, rate, minutes * 60)
    watching.cancel()
    later = [sample for sample in samples if sample[0] > minutes * 60 * 0.2]  # the first fifth warms up
    slope = statistics.linear_regression([s[0] / 60 for s in later], [s[1] for s in later]).slope if later[1:] else None
    return {
        "minutes": minutes,
        "rate_per_s": round(rate, 1),
        **tally.figures(minutes * 60),
        "rss_kib": [sample[1] for sample in samples[:: round(60 / SAMPLE_EVERY_S)]],  # a minute apart
        "rss_kib_per_minute": None if slope is None else round(slope, 2),
        "files": {"first": samples[0][2], "last": samples[-1][2]},
    }


def rss_kib(process: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError(f"process {process} has ended")


@contextmanager
def server(model: Path, *options: str) -> Iterator[tuple[int, int]]:
    """A server on a free port: the port and the process. It has to drain and to end with exit code 0."""
    line = [sys.executable, "-m", "edgepack_runtime", "serve", "--model", str(model), "--port", "0", *options]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, encoding="utf-8")
    assert process.stderr is not None
    try:
        for text in process.stderr:
            told = json.loads(text) if text.startswith("{") else {"event": text}
            if told["event"] == "listening":
                break
        else:
            raise SystemExit(f"the server did not start: {' '.join(line)}")
        # At `info` each request has its line, as in use; somebody has to read them.
        reader = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield told["address"][1], process.pid
        process.terminate()
        code = process.wait(30)
        reader.wait(30)
        if code != 0:
            raise SystemExit(f"the server ended with exit code {code}")
    finally:
        process.kill()
        process.wait()


def measure(model: Path, requests: Sequence[bytes], seconds: float, rounds: int, threads: int) -> dict[str, Any]:
    """Every way in turns, `rounds` times; of each figure the median, of statuses the sum."""
    found: dict[str, list[dict[str, Any]]] = {}
    capacity = 0.0
    for number in range(rounds):
        for batch in BATCHES:
            with server(model, "--max-batch", str(batch), "--threads", str(threads)) as (port, _):
                asyncio.run(closed(port, requests, 4, 1.0))  # warm
                for connections in CONNECTIONS:
                    tally = asyncio.run(closed(port, requests, connections, seconds))
                    key = f"max_batch {batch}, closed, {connections} connections"
                    found.setdefault(key, []).append(tally.figures(seconds))
                capacity = capacity or found[f"max_batch 1, closed, {CONNECTIONS[-1]} connections"][0]["answers_per_s"]
                for load in LOADS:
                    tally = asyncio.run(opened(port, requests, load * capacity, seconds))
                    key = f"max_batch {batch}, open, load {load:g}"
                    found.setdefault(key, []).append(tally.figures(seconds))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    ways = {key: _median(rows) for key, rows in found.items()}
    return {"capacity_per_s": capacity, "ways": ways}


def _median(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        key: round(statistics.median(row[key] for row in rows), 3) for key in ("answers_per_s", "p50_ms", "p99_ms")
    }
    statuses: Counter[str] = Counter()
    for row in rows:
        statuses.update(row["statuses"])
    return {**figures, "statuses": dict(statuses)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="model folder of single texts")
    parser.add_argument("--texts", type=Path, required=True, help=".txt, .tsv, .csv or .jsonl")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (8)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak-minutes", type=float, default=0.0)
    options = parser.parse_args()
    requests = [request(str(text)) for text in read_texts(options.texts)]
    random.Random(0).shuffle(requests)
    result = measure(options.model, requests, options.seconds, options.rounds, options.threads)
    for key, row in result["ways"].items():
        print(
            f"{key:<44} {row['answers_per_s']:9.1f}/s  p50 {row['p50_ms']:8.2f}  p99 {row['p99_ms']:8.2f} ms",
            file=sys.stderr,
        )
    threads = ("--threads", str(options.threads))
    with server(options.model, "--queue", str(QUEUE), *threads) as (port, _):
        rate = OVERLOAD * result["capacity_per_s"]
        result["overload"] = overload(port, requests, rate, 2 * options.seconds)
    if options.soak_minutes:
        with server(options.model, *threads) as (port, process):
            rate = 0.5 * result["capacity_per_s"]
            result["soak"] = asyncio.run(soak(port, process, requests, rate, options.soak_minutes))
    result["conditions"] = to_json(conditions.collect(threads=options.threads, engine="", providers=()))
    print(json.dumps({"benchmark": "serve", "model": options.model.name, **result}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
