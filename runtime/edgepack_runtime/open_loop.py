"""Texts that arrive at random, whether the one before is answered or not: how long each waits for its answer.

A loop that asks for the next text when the last one is answered asks less while the model is slow, and so leaves out
the waiting that others would have done (coordinated omission). Here arrivals are drawn beforehand, as a Poisson
process, and a text's latency counts from the moment at which it was to arrive. There is one server, as an application
with one predictor is: texts are answered in their order.

What such a run shows is one of many that could have been: its percentiles are those of a few seconds, and the verdict
is about the long run (`queueing`). It passes and fails nothing that was not seen, too: the interval holds both.

That takes times of work for independent of each other. Where the machine goes through phases (`phases`), the queue in
a slow one is longer than any average tells, and how long phases last nobody knows from a few of them. Then the high end
is that of a machine which is always as slow as in its slowest phase, and the low end of one which is always as fast as
in its fastest: whatever the phases, the truth lies between.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import bench, closed_loop, contention, noise, phases, queueing, stats
from edgepack_runtime.contention import Contention
from edgepack_runtime.gate_limits import Check, sampled
from edgepack_runtime.latency_limits import P95, OpenLoop, Percentiles
from edgepack_runtime.phases import Phases
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item
from edgepack_runtime.timing import Asked
from edgepack_runtime.wording import counted

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


@dataclasses.dataclass(frozen=True)
class Run:
    """Texts at one rate, of how many rows. `spells` are contentions, with how many texts each saw."""

    rate_per_s: float
    answered: List[Answered]
    spells: List[closed_loop.Spell]
    rows: int

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
        rows = self.rows + other.rows
        return Run(self.rate_per_s, [*self.answered, *moved], [*self.spells, *other.spells], rows)

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

    @property
    def found_idle(self) -> List[bool]:
        """Of each text whether the server had nothing to do when it arrived."""
        free_ms = [-math.inf, *(one.done_ms for one in self.answered)]
        return [one.due_ms >= free for one, free in zip(self.answered, free_ms)]

    @property
    def work_ms(self) -> List[float]:
        """How long the server was at each text; from the arrival on, where that found it idle."""
        return [
            one.latency_ms if idle else one.done_ms - one.begin_ms for one, idle in zip(self.answered, self.found_idle)
        ]

    @property
    def quiet_work_ms(self) -> List[float]:
        """`work_ms` without what others can have added: in each spell the longest times are cut down to one height,
        which is the most that it can do to a queue.
        """
        times_ms, begin = self.work_ms, 0
        for spell in self.spells:
            end = begin + spell.texts
            lost_ms = spell.contention.lost_ms + contention.TICK_MS
            times_ms[begin:end] = noise.cut_down(times_ms[begin:end], lost_ms)
            begin = end
        return times_ms

    @functools.cached_property
    def phases(self) -> Optional[Phases]:
        """Those that the machine went through."""
        return phases.find(self.work_ms)

    def by_kind(self, times_ms: Sequence[float]) -> queueing.Work:
        """Times of all texts: those of texts that found the server idle, and the others."""
        kinds = list(zip(times_ms, self.found_idle))
        return queueing.Work([ms for ms, idle in kinds if idle], [ms for ms, idle in kinds if not idle])

    def busy_periods(self) -> List[List[float]]:
        """Latencies in ms, of texts between two moments at which the server had nothing to do."""
        periods: List[List[float]] = []
        for one, idle in zip(self.answered, self.found_idle):
            if idle:
                periods.append([])
            periods[-1].append(one.latency_ms)
        return periods


def how_many(rate_per_s: float, limits: Percentiles) -> int:
    """Texts of one part of a run that is to decide on `limits`."""
    needed = max(stats.n_for_percentile(part, bench.CONFIDENCE) for part in _fractions(limits))
    return min(max(needed, math.ceil(_LEAST_S * rate_per_s)), max(needed, _MOST_TEXTS))


def decisive(predictor: Predictor, texts: Sequence[Item], asked: OpenLoop, progress: Say) -> Run:
    """A run of as many parts as `asked.seconds` take, or more, up to five, if the first one says that the percentiles
    are not known well by then.

    How many is not up to the limits: who goes on until a verdict is there has more of the wrong ones. Each part goes on
    with the texts where the last one ended: those that were answered twice while others wait tell nothing new.
    """
    count = how_many(asked.rate_per_s, asked.limits)
    run = Run(asked.rate_per_s, [], [], 0)
    parts = done = 0
    while done < max(parts, 1) or (parts and run.answered[-1].due_ms < asked.seconds * 1e3):
        so_far = len(run.answered)
        progress(f"open loop: texts {so_far + 1} to {so_far + count}, {asked.rate_per_s:g} a second")
        begin = so_far % len(texts)
        next_ones = [*texts[begin:], *texts[:begin]]
        run = run.followed_by(measure(predictor, next_ones, asked.rate_per_s, count, seed=_SEED + done))
        run = dataclasses.replace(run, rows=min(len(run.answered), len(texts)))
        if done == 0 and run.utilisation <= MOST_BUSY:  # it does not help to go on with a queue that grows
            parts = math.ceil(min(max((run.precision / _WIDTH) ** 2, 1), _MOST_PARTS))
        done += 1
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
    latencies, found = sorted(one.latency_ms for one in run.answered), run.phases
    row: Dict[str, Any] = {"rate_per_s": run.rate_per_s, "n": len(latencies), "utilisation": round(run.utilisation, 4)}
    for key, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        enough = len(latencies) >= stats.n_for_percentile(part, bench.CONFIDENCE) or part == 0.5
        row[key] = round(stats.percentile(latencies, part), 4) if enough else None
    row["seconds"] = round(run.answered[-1].done_ms / 1e3, 1)
    row["phases"] = None if found is None else {key: round(value, 4) for key, value in found._asdict().items()}
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
        rate = f"{counted(row['rate_per_s'], 'text')} a second, each from its arrival"
        told = f"n = {row['n']}, busy {row['utilisation']:.0%} of the time"
        lines.append(f"{Path(row['folder']).name}: {rate}: {figures}, {told}")
        if not row["kept"]:
            lines.append("THE RATE CANNOT BE KEPT: the queue grows, and the times tell how long it was looked at")
    return "\n".join(lines)


def checks(run: Run, asked: OpenLoop) -> List[Check]:
    """A row for each limit. Where the rate cannot be kept nothing passes; beside others nothing fails that may not."""
    limited = asked.limits.asked()
    intervals = in_the_long_run(run, [part for _, part, _ in limited])
    return [
        _check(run, Asked(f"latency.open_loop.{key}", part, limit), interval)
        for (key, part, limit), interval in zip(limited, intervals)
    ]


def in_the_long_run(run: Run, fractions: Sequence[float]) -> List[stats.Interval]:
    """Percentiles of the latency at this rate, in ms; the intervals hold what was seen, too."""
    as_timed_ms, shortest_ms = run.work_ms, run.quiet_work_ms
    longest_ms, found = as_timed_ms, run.phases
    if found:
        longest_ms = phases.throughout(as_timed_ms, found, found.slowest)
        shortest_ms = phases.throughout(shortest_ms, found, found.fastest)
    work, above, below = (run.by_kind(one) for one in (as_timed_ms, longest_ms, shortest_ms))
    intervals = queueing.intervals(work, above, below, run.rate_per_s, fractions, bench.CONFIDENCE)
    latencies = sorted(one.latency_ms for one in run.answered)
    seen = [stats.percentile(latencies, part) for part in fractions]
    return [
        stats.Interval(interval.value if math.isfinite(interval.value) else ms, *_held(interval, ms))
        for interval, ms in zip(intervals, seen)
    ]


def _held(interval: stats.Interval, seen_ms: float) -> Tuple[float, float]:
    """The ends of `interval`, or what was seen where that lies beyond them."""
    return min(interval.low, seen_ms), max(interval.high, seen_ms)


def _check(run: Run, asked: Asked, interval: stats.Interval) -> Check:
    limit_ms = asked.limit_ms
    seen_ms = stats.percentile(sorted(one.latency_ms for one in run.answered), asked.fraction)
    verdict = stats.verdict_at_most(interval, limit_ms)
    detail = f"{counted(run.rate_per_s, 'text')} a second on average, busy {run.utilisation:.0%} of the time"
    detail += f"; in the long run, by how long the model works on the texts of {counted(run.rows, 'row')}"
    detail += f"; {seen_ms:.4g} ms in this run"
    if run.phases:
        detail += f"; {run.phases.told()}"
    reason = _why_not(run, verdict)
    if reason:
        failed = verdict == stats.FAIL or (run.surely_overloaded and seen_ms > limit_ms)
        verdict = stats.FAIL if failed else stats.INCONCLUSIVE
        detail += f"; {reason}"
    return sampled(
        asked.gate,
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
