"""Latency at an offered rate: texts arrive at random, whether the one before is answered or not.

A loop that asks for the next text when the last one is answered asks less while the model is slow, and so leaves out
the waiting that others would have done (coordinated omission). Here arrivals are drawn beforehand, as a Poisson
process, and a text's latency counts from its arrival. There is one server, as an application with one predictor is:
texts are answered in their order. Figures are those of the run as it was measured.
"""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime.gate import interference, latency
from edgepack_runtime.gate.interference import Interval
from edgepack_runtime.gate.limits import P95, OpenLoop, Percentiles
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.checks import Check, sampled
from edgepack_runtime.util.texts import Item, counted

# Busier than this, texts queue up for as long as they arrive: percentiles say how long one looked, and not how fast the
# model is.
MOST_BUSY = 0.9
_LEAST_S = 5.0
_LEAD_S = 0.05  # before the first text
_SEED = 20240229
GATE = "latency.open_loop"
Say = Callable[[str], None]


class Answered(NamedTuple):
    """One text, in ms since the begin: its arrival, when work on it began, and when it was answered."""

    due_ms: float
    begin_ms: float
    done_ms: float

    @property
    def latency_ms(self) -> float:
        """From the arrival to the answer."""
        return self.done_ms - self.due_ms


class Run(NamedTuple):
    """Texts at one rate, and what others did meanwhile."""

    rate_per_s: float
    answered: List[Answered]
    interference: Interval

    @property
    def latencies_ms(self) -> List[float]:
        """In the order of arrival."""
        return [one.latency_ms for one in self.answered]

    @property
    def utilisation(self) -> float:
        """The share of the time in which the server would work at exactly this rate; above 1 the queue grows."""
        work_ms = math.fsum(one.done_ms - one.begin_ms for one in self.answered)
        return work_ms / len(self.answered) / 1e3 * self.rate_per_s

    @property
    def reached(self) -> bool:
        """Whether the server keeps up with the rate."""
        return self.utilisation <= MOST_BUSY


def how_many(rate_per_s: float, limits: Percentiles, seconds: float) -> int:
    """Texts of a run that takes `seconds` or more and bounds the percentiles."""
    needed = max(
        intervals.n_for_percentile(part, bench.CONFIDENCE) for part in [P95, *(p for _, p, _ in limits.asked())]
    )
    return max(needed, math.ceil(seconds * rate_per_s))


def measure(predictor: Predictor, texts: Sequence[Item], rate_per_s: float, count: int) -> Run:
    """Answer `count` of `texts`, starting over if they are fewer, as they arrive: `rate_per_s` on average."""
    draw = random.Random(_SEED)
    answered: List[Answered] = []
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
        answered.append(Answered(due_s * 1e3, (begin - origin) * 1e3, (done - origin) * 1e3))
    return Run(rate_per_s, answered, interference.between(before, interference.read()))


def summary(run: Run) -> Dict[str, Any]:
    """For a receipt, and for `bench`."""
    latencies = sorted(run.latencies_ms)
    row: Dict[str, Any] = {"rate_per_s": run.rate_per_s, "n": len(latencies), "utilisation": round(run.utilisation, 4)}
    for key, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        enough = len(latencies) >= intervals.n_for_percentile(part, bench.CONFIDENCE) or part == 0.5
        row[key] = round(intervals.percentile(latencies, part), 4) if enough else None
    row["seconds"] = round(run.answered[-1].done_ms / 1e3, 1)
    row["contention"] = run.interference.as_json()
    return row


def compare(
    folders: Sequence[Path], texts: Sequence[Item], rate_per_s: float, *, threads: Optional[int], progress: Say
) -> List[Dict[str, Any]]:
    """A `summary` of each of the model `folders`, one after the other, of as many texts as p99 needs.

    Errors as `Predictor`.
    """
    found, count = [], how_many(rate_per_s, Percentiles(p99_ms=math.inf), _LEAST_S)
    for folder in folders:
        predictor = Predictor(folder, threads=threads)
        for text in texts[: bench.WARM_UP_TEXTS]:
            predictor.predict(text)
        progress(f"open loop: {folder.name}, {count} texts, {rate_per_s:g} a second")
        run = measure(predictor, texts, rate_per_s, count)
        found.append({"folder": str(folder), "kept": run.reached, **summary(run)})
    return found


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """`compare`'s result as lines for people."""
    lines = []
    for row in rows:
        figures = ", ".join(f"{key[:3]} {row[key]:.3f} ms" for key in ("p50_ms", "p95_ms", "p99_ms") if row[key])
        rate = f"{counted(row['rate_per_s'], 'text')} a second, each from its arrival"
        lines.append(
            f"{Path(row['folder']).name}: {rate}: {figures}, n = {row['n']}, busy {row['utilisation']:.0%} of the time"
        )
        if not row["kept"]:
            lines.append("THE RATE IS NOT REACHED: the queue grows, and the times depend on how long the run was")
    return "\n".join(lines)


def checks(run: Run, asked: OpenLoop) -> List[Check]:
    """A row for each limit. If the rate is not reached none passes; if other programs interfered, none fails."""
    return [_check(run, f"{GATE}.{key}", part, limit_ms) for key, part, limit_ms in asked.limits.asked()]


def _check(run: Run, gate: str, fraction: float, limit_ms: float) -> Check:
    interval = intervals.percentile_interval(run.latencies_ms, fraction, bench.CONFIDENCE)
    verdict, why = latency.undisturbed(intervals.verdict_at_most(interval, limit_ms), run.interference)
    detail = f"{counted(run.rate_per_s, 'text')} a second on average, busy {run.utilisation:.0%} of the time"
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
