"""How often the closed-loop gate is wrong on machines that are slow for a while, which no counter tells.

    python benchmarks/closed_loop_errors.py [--runs 100] [--seed 0]

Texts take 3 ms on average, or `slow` times as long while the machine is in a slow phase: `share` of the time, for
`phase_ms` at a time on average; with `hit`, so large a share of the texts in it, at random. `spread` is how much texts
differ (the standard deviation of the logarithm). The truth is the percentile in the long run. A run is wrong where it
passes a limit just below that, or fails one just above it; `seen` is the share of runs in which the machine was slow
for at least half of `share`, `passes_wrongly_seen` that of wrong passes among those, and `power` the share that passes
1.25 times the truth. The gate's own code measures and judges, twice where it asks for that; only the clock is made up.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from typing import Any, Final, NamedTuple
from unittest import mock

from edgepack_runtime import contention, gate_latency, stats
from edgepack_runtime.contention import Reading
from edgepack_runtime.gate_limits import Limits, parse
from edgepack_runtime.latency_limits import P95
from edgepack_runtime.predictor import Split
from edgepack_runtime.timing import Timing
from edgepack_runtime.tuning import Tuning

BASE_MS: Final = 3.0
JITTER: Final = 0.03  # of the same text, as `spread`
CORES: Final = 2
BETWEEN_MS: Final = 1500.0  # until a fresh process times again
LONG_RUN: Final = 200_000  # texts
JUST: Final = 0.02  # below the truth, and above it
FRACTIONS: Final = {"p50_ms": 0.5, "p95_ms": P95}


class Case(NamedTuple):
    """A machine, its texts, and which percentile is gated."""

    slow: float
    share: float
    phase_ms: float
    rows: int
    spread: float
    key: str
    hit: float = 1.0


CASES: Final = (
    Case(1.0, 0.0, 1.0, 300, 0.3, "p95_ms"),
    Case(1.2, 0.4, 230.0, 300, 0.1, "p50_ms"),
    Case(1.3, 0.6, 160.0, 300, 0.05, "p50_ms"),
    Case(1.4, 0.5, 134.0, 300, 0.3, "p50_ms"),
    Case(1.5, 0.55, 300.0, 300, 0.1, "p50_ms"),
    Case(1.4, 0.4, 600.0, 300, 0.1, "p50_ms"),
    Case(1.3, 0.4, 1000.0, 300, 0.05, "p50_ms"),
    Case(1.4, 0.15, 1000.0, 300, 0.1, "p50_ms"),
    Case(1.4, 0.15, 270.0, 300, 0.3, "p95_ms"),
    Case(1.4, 0.15, 270.0, 300, 0.1, "p95_ms"),
    Case(2.5, 0.2, 100.0, 300, 0.1, "p95_ms", hit=0.35),
    Case(2.0, 0.12, 36.0, 2000, 0.05, "p95_ms"),
    Case(2.0, 0.12, 240.0, 2000, 0.05, "p95_ms"),
)


class Machine:
    """What times `work_ms` on a clock of its own, and reads counters that tell of nobody else."""

    tuning = Tuning()

    def __init__(self, case: Case, work_ms: dict[str, float], draw: random.Random) -> None:
        self.work_ms, self.draw, self.case, self.slow = work_ms, draw, case, case.slow
        fast_ms = case.phase_ms * (1 - case.share) / case.share if case.share else math.inf
        self.phases_ms = (fast_ms, case.phase_ms)
        self.now, self.is_slow, self.slow_ms = 0.0, draw.random() < case.share, 0.0
        self.until = self._next()

    def _next(self) -> float:
        length = self.phases_ms[self.is_slow]
        return self.now + (math.inf if math.isinf(length) else self.draw.expovariate(1 / length))

    def do(self, left_ms: float) -> float:
        """So many ms of work at full speed; returns how long it took."""
        begin = self.now
        while True:
            rate = 1 / self.slow if self.is_slow else 1.0
            step_ms = min(left_ms / rate, self.until - self.now)
            self.slow_ms += step_ms if self.is_slow else 0.0
            self.now += step_ms
            left_ms -= step_ms * rate
            if self.now < self.until:
                return self.now - begin
            self.is_slow = not self.is_slow
            self.until = self._next()

    def read(self, *, waits: bool = True) -> Reading:
        tick = contention.TICK_MS
        all_told, idle_told = (math.floor(cores * self.now / tick) * tick for cores in (CORES, CORES - 1))
        return Reading(self.now, self.now, CORES, all_told, idle_told, 0.0)

    def predict(self, text: str) -> None:
        self.timed_predict(text)

    def tokens(self, text: str) -> int:
        return len(text)

    def timed_predict(self, text: str) -> tuple[None, Split]:
        if self.case.hit < 1:
            self.slow = self.case.slow if self.draw.random() < self.case.hit else 1.0
        return None, Split(0.0, self.do(self.work_ms[text] * self.draw.lognormvariate(0, JITTER)), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin, cases = time.perf_counter(), []
    for case in CASES:
        cases.append({**case._asdict(), **counted(case, options.runs, options.seed)})
        print(json.dumps(cases[-1]), flush=True)
    worst = {key: max(case[key] for case in cases) for key in ("passes_wrongly_seen", "fails_wrongly")}
    seconds = round(time.perf_counter() - begin, 1)
    print(json.dumps({"runs": options.runs, "seed": options.seed, **worst, "cases": cases, "seconds": seconds}))


def counted(case: Case, runs: int, seed: int) -> dict[str, Any]:
    """What so many gates on one machine and its texts say, each of them at another time."""
    draw = random.Random(seed)
    work_ms = {f"{row:05}": BASE_MS * draw.lognormvariate(0, case.spread) for row in range(case.rows)}
    texts = list(work_ms)
    machine = Machine(case, work_ms, draw)
    long_run = sorted(machine.timed_predict(draw.choice(texts))[1].total_ms for _ in range(LONG_RUN))
    true_ms = stats.percentile(long_run, FRACTIONS[case.key])
    limits = {
        name: parse({"latency": {case.key: factor * true_ms}})
        for name, factor in (("below", 1 - JUST), ("above", 1 + JUST), ("well_above", 1.25))
    }
    said: Counter[str] = Counter()
    for number in range(runs):
        verdicts, seen = gate(case, work_ms, limits, random.Random(f"{seed}/{number}"))
        wrong = verdicts["below"] == stats.PASS
        are = {
            "passes_wrongly": wrong,
            "passes_wrongly_seen": wrong and seen,
            "fails_wrongly": verdicts["above"] == stats.FAIL,
            "power": verdicts["well_above"] == stats.PASS,
            "seen": seen,
        }
        said.update(name for name, is_so in are.items() if is_so)
    shares = {name: round(said[name] / runs, 4) for name in ("passes_wrongly", "fails_wrongly", "power", "seen")}
    seen_wrongly = round(said["passes_wrongly_seen"] / max(said["seen"], 1), 4)
    return {"true_ms": round(true_ms, 3), **shares, "passes_wrongly_seen": seen_wrongly}


def gate(
    case: Case, work_ms: dict[str, float], limits: dict[str, Limits], draw: random.Random
) -> tuple[dict[str, str], bool]:
    """The verdict on each limit, of one machine at one time, and whether it was slow when `below` was judged."""
    machine = Machine(case, work_ms, draw)
    texts, asked = list(work_ms), limits["below"]
    timings: list[Timing] = []
    slow: list[float] = []  # shares of the time of each

    def measure() -> Timing:
        begin, slow_ms = machine.now, machine.slow_ms
        timings.append(gate_latency.measure(machine, texts, asked, lambda line: None))  # type: ignore[arg-type]
        slow.append((machine.slow_ms - slow_ms) / (machine.now - begin))
        return timings[-1]

    def again() -> Timing:
        if len(timings) == 1:
            machine.do(BETWEEN_MS)
            measure()
        return timings[1]

    with mock.patch.object(contention, "read", machine.read):
        first = measure()
        judged = {
            name: gate_latency.settle(first, limit, None, again, lambda line: None) for name, limit in limits.items()
        }
    verdicts = {name: gate_latency.checks(timing, limits[name], None)[0].verdict for name, timing in judged.items()}
    return verdicts, slow[judged["below"].processes - 1] >= case.share / 2


if __name__ == "__main__":
    main()
