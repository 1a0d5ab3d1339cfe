"""Open-loop latency: texts arrive at random at a given rate, independent of the answers.

A closed loop sends fewer texts while the model is slow, and so omits waiting times (coordinated omission). Here
arrivals are a Poisson process drawn in advance, and latency counts from the arrival. One predictor answers all texts
in order of arrival.
"""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime.device import interference
from edgepack_runtime.device.interference import Interference
from edgepack_runtime.errors import printed
from edgepack_runtime.gate import latency
from edgepack_runtime.gate.limits import P95, OpenLoop, Percentiles
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.checks import GateCheck, sampled
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.texts import Item, counted

# Above this utilisation the queue keeps growing: percentiles depend on the length of the run, not on the model.
MOST_BUSY = 0.9
_LEAST_S = 5.0
_LEAD_S = 0.05  # before the first text
_SEED = 20240229
GATE = "latency.open_loop"


class Arrival(NamedTuple):
    """Times of one text, in ms since the start of the run: its arrival, the begin of its prediction, its answer."""

    due_ms: float
    begin_ms: float
    done_ms: float

    @property
    def latency_ms(self) -> float:
        """From the arrival to the answer."""
        return self.done_ms - self.due_ms


class OpenLoopRun(NamedTuple):
    """A run at one rate, and the interference during it."""

    rate_per_s: float
    answered: List[Arrival]
    interference: Interference

    @property
    def latencies_ms(self) -> List[float]:
        """In the order of arrival."""
        return [one.latency_ms for one in self.answered]

    @property
    def utilisation(self) -> float:
        """Fraction of the time that the predictor works at this rate; above 1 the queue grows."""
        work_ms = math.fsum(one.done_ms - one.begin_ms for one in self.answered)
        return work_ms / len(self.answered) / 1e3 * self.rate_per_s

    @property
    def reached(self) -> bool:
        """Whether the predictor keeps up with the rate."""
        return self.utilisation <= MOST_BUSY


def how_many(rate_per_s: float, limits: Percentiles, seconds: float) -> int:
    """Number of texts of a run that takes at least `seconds` and bounds the percentiles."""
    needed = max(
        intervals.n_for_percentile(part, bench.CONFIDENCE) for part in [P95, *(p for _, p, _ in limits.asked())]
    )
    return max(needed, math.ceil(seconds * rate_per_s))


def measure(predictor: Predictor, texts: Sequence[Item], rate_per_s: float, count: int) -> OpenLoopRun:
    """Predict `count` texts, cycling through `texts`, as they arrive at `rate_per_s` on average."""
    draw = random.Random(_SEED)
    answered: List[Arrival] = []
    due_s = 0.0
    before = interference.read()
    origin = time.perf_counter() + _LEAD_S
    for number in range(count):
        due_s += draw.expovariate(rate_per_s)
        wait_s = origin + due_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        begin = time.perf_counter()
        predictor.predict(texts[number % len(texts)])
        done = time.perf_counter()
        answered.append(Arrival(due_s * 1e3, (begin - origin) * 1e3, (done - origin) * 1e3))
    return OpenLoopRun(rate_per_s, answered, interference.between(before, interference.read()))


def summary(run: OpenLoopRun) -> Dict[str, Any]:
    """JSON object for a receipt, and for `bench`."""
    latencies = sorted(run.latencies_ms)
    row: Dict[str, Any] = {"rate_per_s": run.rate_per_s, "n": len(latencies), "utilisation": round(run.utilisation, 4)}
    for key, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        enough = len(latencies) >= intervals.n_for_percentile(part, bench.CONFIDENCE) or part == 0.5
        row[key] = round(intervals.percentile(latencies, part), 4) if enough else None
    row["seconds"] = round(run.answered[-1].done_ms / 1e3, 1)
    row["contention"] = run.interference.as_json()
    return row


def compare(
    folders: Sequence[Path], texts: Sequence[Item], rate_per_s: float, *, threads: Optional[int], progress: Log
) -> List[Dict[str, Any]]:
    """Measure the model `folders` one after the other, with enough texts for p99; return a `summary` of each.

    Errors as `Predictor`.
    """
    found, count = [], how_many(rate_per_s, Percentiles(p99_ms=math.inf), _LEAST_S)
    for folder in folders:
        predictor = Predictor(folder, threads=threads)
        for text in texts[: bench.WARM_UP_TEXTS]:
            predictor.predict(text)
        progress(f"open loop: {folder.name}, {count} texts, {rate_per_s:g} per second")
        run = measure(predictor, texts, rate_per_s, count)
        found.append({"folder": str(folder), "kept": run.reached, **summary(run)})
    return found


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the result of `compare`."""
    lines = []
    for row in rows:
        figures = ", ".join(f"{key[:3]} {row[key]:.3f} ms" for key in ("p50_ms", "p95_ms", "p99_ms") if row[key])
        rate = f"{counted(row['rate_per_s'], 'text')} per second, each from its arrival"
        lines.append(
            f"{Path(row['folder']).name}: {rate}: {figures}, n = {row['n']}, busy {row['utilisation']:.0%} of the time"
        )
        if not row["kept"]:
            lines.append("THE RATE IS NOT REACHED: the queue grows, and the times depend on how long the run was")
    return printed(lines)


def checks(run: OpenLoopRun, asked: OpenLoop) -> List[GateCheck]:
    """One check per limit. If the rate is not reached none passes; if other programs interfered none fails."""
    return [_check(run, f"{GATE}.{key}", part, limit_ms) for key, part, limit_ms in asked.limits.asked()]


def _check(run: OpenLoopRun, gate: str, fraction: float, limit_ms: float) -> GateCheck:
    interval = intervals.percentile_interval(run.latencies_ms, fraction, bench.CONFIDENCE)
    verdict, why = latency.undisturbed(intervals.verdict_at_most(interval, limit_ms), run.interference)
    detail = f"{counted(run.rate_per_s, 'text')} per second on average, busy {run.utilisation:.0%} of the time"
    if not run.reached:
        verdict = intervals.INCONCLUSIVE if verdict == intervals.PASS else verdict
        why = "the rate is not reached: one predictor would be busy all the time, and the queue would grow"
    return sampled(
        gate,
        verdict,
        interval,
        limit=limit_ms,
        unit="ms",
        n=len(run.answered),
        confidence=bench.CONFIDENCE,
        detail=f"{detail}; {why}" if why else detail,
    )
