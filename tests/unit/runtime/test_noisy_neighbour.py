"""The latency gate beside neighbours, on a machine that is made up: right or inconclusive, and never wrong.

`benchmarks/noisy_neighbour.py` does the same with a real model and real neighbours. Here the clock, the neighbours and
the kernel's counters, in ticks of 10 ms, are simulated; the gate's own code decides.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from edgepack_runtime import bench, contention, gate_latency, stats
from edgepack_runtime.contention import Reading
from edgepack_runtime.gate_limits import Limits, parse
from edgepack_runtime.predictor import Split
from edgepack_runtime.timing import Timing
from edgepack_runtime.tuning import Tuning

KINDS = (
    "nobody",
    "shares the core",
    "takes bandwidth",
    "bursts",
    "bursts of bandwidth",
    "from the middle",
    "short and often",
)
FACTORS = (0.6, 0.8, 1.25, 1.6)  # of the quiet figure, as limits
TEXTS = [f"{number:04}" for number in range(100)]
CORES = 2


class Machine:
    """Two cores, the work of `ms` for each text, and a neighbour. Times in ms."""

    tuning = Tuning()

    def __init__(self, kind: str, ms: dict[str, float], draw: random.Random) -> None:
        self.ms, self.draw = ms, draw
        self.now = self.own = self.others = 0.0
        self.shares = kind in ("shares the core", "bursts", "short and often")
        self.rate = 0.0 if self.shares else draw.uniform(0.4, 0.95)  # of the work while the neighbour runs
        self.bursts: tuple[float, float] | None = None
        if kind.startswith("bursts"):
            self.bursts = (draw.uniform(50, 500), draw.uniform(50, 500))
        elif kind == "short and often":
            self.bursts = (draw.uniform(1, 5), draw.uniform(1, 20))
        elif self.shares:
            self.bursts = (4.0, 4.0)  # the scheduler lets both take turns
        self.begin = draw.uniform(100, 600) if kind == "from the middle" else 0.0
        self.runs, self.until = False, math.inf if kind == "nobody" else self.begin

    def _switch(self) -> None:
        self.runs = not self.runs
        if self.bursts is None:
            self.until = math.inf
        else:
            self.until = self.now + self.draw.uniform(0.5, 1.5) * self.bursts[0 if self.runs else 1]

    def work(self, left: float) -> float:
        """Do so many ms of work; returns how long it took."""
        begin = self.now
        while left > 1e-9:
            if self.now >= self.until:
                self._switch()
                if not self.runs:
                    left += 0.1  # caches are cold
            rate = self.rate if self.runs else 1.0
            step = min(self.until - self.now, left / rate if rate else math.inf)
            self.now += step
            left -= step * rate
            self.others += step if self.runs else 0.0
            self.own += 0.0 if self.runs and self.shares else step
        return self.now - begin

    def read(self, *, waits: bool = True) -> Reading:
        idle = CORES * self.now - self.own - self.others
        tick = contention.TICK_MS
        told, idle_told = (math.floor(value / tick) * tick for value in (CORES * self.now, idle))
        return Reading(self.now, self.own, CORES, told, idle_told, 0.0)

    def predict(self, text: str) -> None:
        self.timed_predict(text)

    def tokens(self, text: str) -> int:
        return len(text)

    def timed_predict(self, text: str) -> tuple[None, Split]:
        jitter = self.draw.lognormvariate(0, 0.02)
        return None, Split(0.0, self.work(self.ms[text] * jitter), 0.0)


def silent(line: str) -> None:
    """Nobody listens."""


def verdicts(machine: Any, limits: Limits) -> tuple[Timing, list[str]]:
    """What is said in the end, and the first timing."""
    first = gate_latency.measure(machine, TEXTS, limits, silent)
    timing = gate_latency.settle(
        first, limits, None, lambda: gate_latency.measure(machine, TEXTS, limits, silent), silent
    )
    return first, [row.verdict for row in gate_latency.checks(timing, limits, None)]


def by_windows(timing: Timing, limits: Limits) -> list[str]:
    """What would be said if two windows that agree were enough."""
    totals = [sample.total_ms for sample in timing.samples]
    found = []
    for _, fraction, limit in limits.latency.percentiles.asked():
        verdict = stats.verdict_at_most(stats.percentile_interval(totals, fraction, bench.CONFIDENCE), limit)
        found.append(verdict if timing.stable else stats.INCONCLUSIVE)
    return found


def test_no_neighbour_makes_a_verdict_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    wrong_by_windows = 0
    for number, (kind, factor) in enumerate((kind, factor) for kind in KINDS for factor in FACTORS for _ in range(3)):
        draw = random.Random(number)
        ms = {text: 2.0 * draw.lognormvariate(0, 0.4) for text in TEXTS}
        ordered = sorted(ms.values())
        quiet = {"p50_ms": stats.percentile(ordered, 0.5), "p95_ms": stats.percentile(ordered, 0.95)}
        limits = parse({"latency": {key: factor * value for key, value in quiet.items()}})
        machine = Machine(kind, ms, draw)
        monkeypatch.setattr(contention, "read", machine.read)
        first, told = verdicts(machine, limits)
        right = stats.FAIL if factor < 1 else stats.PASS
        found[kind].update("right" if one == right else one if one == stats.INCONCLUSIVE else "wrong" for one in told)
        wrong = stats.PASS if factor < 1 else stats.FAIL
        wrong_by_windows += by_windows(first, limits).count(wrong)
    assert {kind: counts["wrong"] for kind, counts in found.items()} == dict.fromkeys(KINDS, 0), found
    assert found["nobody"]["right"] >= 22, found
    assert found["bursts"]["right"] >= 8, found  # between them, fails are told too
    assert wrong_by_windows >= 10  # what this is about
