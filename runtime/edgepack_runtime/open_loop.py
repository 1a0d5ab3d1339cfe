"""Texts that arrive at random, whether the one before is answered or not: how long each waits for its answer.

A loop that asks for the next text when the last one is answered asks less while the model is slow, and so leaves out
the waiting that others would have done (coordinated omission). Here arrivals are drawn beforehand, as a Poisson
process, and a text's latency counts from the moment at which it was to arrive. There is one server, as an application
with one predictor is: texts are answered in their order.

What such a run shows is one of many that could have been: its percentiles are those of a few seconds, and the verdict
is about the long run (`queueing`). It passes and fails nothing that was not seen, too: the interval holds both.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import bench, closed_loop, contention, noise, queueing, stats
from edgepack_runtime.contention import Contention
from edgepack_runtime.gate_limits import Check, sampled
from edgepack_runtime.latency_limits import P95, OpenLoop, Percentiles
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item

# Busier than this, texts queue up for as long as they arrive: the time that a queue takes to settle grows with
# 1 / (1 - utilisation)^2, and percentiles say how long one looked and not how fast the model is.
MOST_BUSY = 0.9
_MOST_PARTS = 5
_WIDTH = 0.05  # standard deviation of a percentile against itself, at which more texts are not worth their time
_LEAST_S = 5.0
_MOST_TEXTS = 20_000
_SPELL_S = 1.0
_LEAD_S = 0.05  # before the first text
_SEED = 20240229
Say = Callable[[str], None]


class Answered(NamedTuple):
    """One text, in ms since the begin: when it was to arrive, when work on it began, and when it was answered."""

    due_ms: float
    begin_ms: float
    done_ms: float

    @property
    def latency_ms(self) -> float:
        """From the arrival to the answer."""
        return self.done_ms - self.due_ms


class Run(NamedTuple):
    """Texts at one rate, how many of them were different. `spells` are contentions, with how many texts each saw."""

    rate_per_s: float
    answered: List[Answered]
    spells: List[closed_loop.Spell]
    different: int

    @property
    def utilisation(self) -> float:
        """The share of the time in which the server worked, had the texts arrived as evenly as they were to: above 1,
        the rate cannot be kept however long the queue may be.
        """
        work_ms = math.fsum(one.done_ms - one.begin_ms for one in self.answered)
        return work_ms / len(self.answered) / 1e3 * self.rate_per_s

    @property
    def surely_overloaded(self) -> bool:
        """Whether the rate could not be kept on a quiet machine either."""
        work_ms = math.fsum(one.done_ms - one.begin_ms for one in self.answered)
        lost_ms = math.fsum(spell.contention.lost_ms for spell in self.spells)
        return (work_ms - lost_ms) / len(self.answered) / 1e3 * self.rate_per_s > 1

    @property
    def contention(self) -> Contention:
        """Of the whole run."""
        return contention.together([spell.contention for spell in self.spells])

    def followed_by(self, other: Run) -> Run:
        """Both as one: the second began when the first was done."""
        shift_ms = self.answered[-1].done_ms if self.answered else 0.0
        moved = [Answered(*(moment + shift_ms for moment in one)) for one in other.answered]
        different = self.different + other.different
        return Run(self.rate_per_s, [*self.answered, *moved], [*self.spells, *other.spells], different)

    @property
    def precision(self) -> float:
        """About how well percentiles in the long run are known: their standard deviation against themselves.

        They grow with 1 / (1 - utilisation), and of the utilisation that of the mean time of work is known.
        """
        work_ms = [one.done_ms - one.begin_ms for one in self.answered]
        if self.utilisation >= 1 or len(work_ms) < 2:
            return math.inf
        spread = statistics.stdev(work_ms) / statistics.fmean(work_ms) / math.sqrt(len(work_ms))
        return spread / (1 - self.utilisation)

    def work(self, *, least: bool = False) -> queueing.Work:
        """How long the server was at each text.

        Args:
            least: without what others can have added: in each spell the longest times are cut down to one height, which
                is the most that it can do to a queue.
        """
        times_ms, idle = [], []
        begin, free_ms = 0, -math.inf
        for one in self.answered:
            idle.append(one.due_ms >= free_ms)
            times_ms.append(one.latency_ms if idle[-1] else one.done_ms - one.begin_ms)
            free_ms = one.done_ms
        for spell in self.spells if least else []:
            end = begin + spell.texts
            lost_ms = spell.contention.lost_ms + contention.TICK_MS
            times_ms[begin:end] = noise.cut_down(times_ms[begin:end], lost_ms)
            begin = end
        kinds = list(zip(times_ms, idle))
        return queueing.Work([ms for ms, found_idle in kinds if found_idle], [ms for ms, other in kinds if not other])

    def busy_periods(self) -> List[List[float]]:
        """Latencies in ms, of texts between two moments at which the server had nothing to do."""
        periods: List[List[float]] = []
        free_ms = -math.inf
        for one in self.answered:
            if one.due_ms >= free_ms:
                periods.append([])
            periods[-1].append(one.latency_ms)
            free_ms = one.done_ms
        return periods


def how_many(rate_per_s: float, limits: Percentiles) -> int:
    """Texts of one part of a run that is to decide on `limits`."""
    needed = max(stats.n_for_percentile(part, bench.CONFIDENCE) for part in _fractions(limits))
    return min(max(needed, math.ceil(_LEAST_S * rate_per_s)), max(needed, _MOST_TEXTS))


def decisive(predictor: Predictor, texts: Sequence[Item], asked: OpenLoop, progress: Say) -> Run:
    """A run of as many parts, up to five, as the first one says that it takes to know the percentiles well.

    How many is not up to the limits: who goes on until a verdict is there has more of the wrong ones. Each part goes on
    with the texts where the last one ended: those that were answered twice while others wait tell nothing new.
    """
    count = how_many(asked.rate_per_s, asked.limits)
    run = Run(asked.rate_per_s, [], [], 0)
    parts = 1
    for number in range(_MOST_PARTS):
        progress(f"open loop: {count} texts, {asked.rate_per_s:g} a second")
        begin = len(run.answered) % len(texts)
        next_ones = [*texts[begin:], *texts[:begin]]
        run = run.followed_by(measure(predictor, next_ones, asked.rate_per_s, count, seed=_SEED + number))
        run = run._replace(different=min(len(run.answered), len(texts)))
        if number == 0 and run.utilisation <= MOST_BUSY:
            parts = math.ceil(min((run.precision / _WIDTH) ** 2, _MOST_PARTS))
        if number + 1 >= parts:
            break
    return run


def measure(predictor: Predictor, texts: Sequence[Item], rate_per_s: float, count: int, seed: int = _SEED) -> Run:
    """Answer `count` of `texts`, gone through again if they are fewer, as they arrive: `rate_per_s` on average."""
    draw = random.Random(seed)
    waits = closed_loop.waits_for_others(predictor.tuning.threads)
    answered: List[Answered] = []
    spells: List[closed_loop.Spell] = []
    due_s, counted = 0.0, 0
    before = contention.read(waits=waits)
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
        if done * 1e3 - before.clock_ms >= _SPELL_S * 1e3 or number + 1 == count:
            after = contention.read(waits=waits)
            spells.append(closed_loop.Spell(len(answered) - counted, contention.between(before, after)))
            before, counted = after, len(answered)
    return Run(rate_per_s, answered, spells, min(count, len(texts)))


def _fractions(limits: Percentiles) -> List[float]:
    """The percentiles that are bounded: those that are asked for, and p95 in any case."""
    return [P95, *(part for _, part, _ in limits.asked())]


def summary(run: Run) -> Dict[str, Any]:
    """For a receipt, and for `bench`."""
    latencies = sorted(one.latency_ms for one in run.answered)
    row: Dict[str, Any] = {"rate_per_s": run.rate_per_s, "n": len(latencies), "utilisation": round(run.utilisation, 4)}
    for key, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        enough = len(latencies) >= stats.n_for_percentile(part, bench.CONFIDENCE) or part == 0.5
        row[key] = round(stats.percentile(latencies, part), 4) if enough else None
    row["longest_queue"] = max(map(len, run.busy_periods()))
    row["contention"] = run.contention.as_json()
    return row


def compare(
    folders: Sequence[Path], texts: Sequence[Item], rate_per_s: float, *, threads: Optional[int], progress: Say
) -> List[Dict[str, Any]]:
    """A `summary` of each of the model `folders`, one after the other, of as many texts as p99 needs.

    Errors as `Predictor`.
    """
    found, count = [], how_many(rate_per_s, Percentiles(p99_ms=math.inf))
    for folder in folders:
        predictor = Predictor(folder, threads=threads)
        for text in texts[: bench.WARM_UP_TEXTS]:
            predictor.predict(text)
        progress(f"open loop: {folder.name}, {count} texts, {rate_per_s:g} a second")
        run = measure(predictor, texts, rate_per_s, count)
        found.append({"folder": str(folder), "kept": run.utilisation <= MOST_BUSY, **summary(run)})
    return found


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """`compare`'s result as lines for people."""
    lines = []
    for row in rows:
        figures = ", ".join(f"{key[:3]} {row[key]:.3f} ms" for key in ("p50_ms", "p95_ms", "p99_ms") if row[key])
        line = f"{Path(row['folder']).name}: {row['rate_per_s']:g} texts a second from their arrival: {figures}, "
        lines.append(line + f"n = {row['n']}, busy {row['utilisation']:.0%} of the time")
        if not row["kept"]:
            lines.append("THE RATE CANNOT BE KEPT: the queue grows, and the times tell how long it was looked at")
    return "\n".join(lines)


def checks(run: Run, asked: OpenLoop) -> List[Check]:
    """A row for each limit. Where the rate cannot be kept nothing passes; beside others nothing fails that may not."""
    limited = asked.limits.asked()
    found = in_the_long_run(run, [part for _, part, _ in limited])
    return [
        _check(run, f"latency.open_loop.{key}", interval, part, limit)
        for (key, part, limit), interval in zip(limited, found)
    ]


def in_the_long_run(run: Run, fractions: Sequence[float]) -> List[stats.Interval]:
    """Percentiles of the latency at this rate, in ms. An interval holds what was seen, too."""
    above, below = run.work(), run.work(least=True)
    found = queueing.intervals(above, below, run.rate_per_s, fractions, bench.CONFIDENCE)
    latencies = sorted(one.latency_ms for one in run.answered)
    seen = [stats.percentile(latencies, part) for part in fractions]
    return [
        stats.Interval(interval.value if math.isfinite(interval.value) else ms, *_held(interval, ms))
        for interval, ms in zip(found, seen)
    ]


def _held(interval: stats.Interval, seen_ms: float) -> Tuple[float, float]:
    """The ends of `interval`, or what was seen where that lies beyond them."""
    return min(interval.low, seen_ms), max(interval.high, seen_ms)


def _check(run: Run, gate: str, interval: stats.Interval, fraction: float, limit_ms: float) -> Check:
    seen_ms = stats.percentile(sorted(one.latency_ms for one in run.answered), fraction)
    verdict = stats.verdict_at_most(interval, limit_ms)
    detail = f"{run.rate_per_s:g} texts a second on average, busy {run.utilisation:.0%} of the time"
    detail += f"; in the long run, by how long the model works on {run.different} different texts"
    detail += f"; {seen_ms:.4g} ms in this run"
    reason = _why_not(run, verdict)
    if reason:
        failed = verdict == stats.FAIL or (run.surely_overloaded and seen_ms > limit_ms)
        verdict = stats.FAIL if failed else stats.INCONCLUSIVE
        detail += f"; {reason}"
    return sampled(
        gate,
        verdict,
        interval,
        limit=limit_ms,
        unit="ms",
        n=len(run.answered),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )


def _why_not(run: Run, verdict: str) -> Optional[str]:
    """Why it is no pass, or nothing certain."""
    if run.utilisation > MOST_BUSY:
        return "the offered rate cannot be kept: one predictor would be busy all the time, and the queue would grow"
    if verdict != stats.INCONCLUSIVE:
        return None
    if not run.contention.quiet:
        return f"{run.contention.told()}: measure on an idle machine"
    return "the limit lies within the interval"
