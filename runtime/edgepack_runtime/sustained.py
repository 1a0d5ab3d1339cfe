"""Whether answers become slower while texts come one after the other for a long time, and what slowed them down.

Thousands of timings tell the medians of two thirds of a run to a fraction of a percent. That is not how well the
slowdown is known: where a machine is now slower and now faster for seconds, for reasons that have nothing to do with
heat, the last third may happen to be either. Heat only slows down. So as much as answers became *faster* again in a run
is what else there was; either third may be off by that, and the interval allows for both.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

from edgepack_runtime import after_idle, bench, closed_loop, noise, stats, throttling
from edgepack_runtime.closed_loop import Window
from edgepack_runtime.gate_limits import Check, sampled
from edgepack_runtime.latency_limits import Sustained
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item
from edgepack_runtime.throttling import Throttle

GATE = "latency.sustained.max_slowdown_percent"
_PARTS = (12, 24, 48)  # into which a run is cut, to look for answers that became faster again
_WORTH_A_WORD_PERCENT = 0.5
_LOOK_S = 2.0  # between two looks at what throttles; a device with many cores has many files


@dataclasses.dataclass(frozen=True)
class Run:
    """One text again and again; `moments` are what the device told of throttling, from the begin to the end."""

    window: Window
    moments: List[Throttle]

    @functools.cached_property
    def slowdown(self) -> Slowdown:
        """The last third against the first, each with the interval of its median that holds on a quiet machine.

        The ends of the ratio are taken from the far ends of both, so it is wider than either would have to be; and
        wider on either side by what was regained, for each third.
        """
        first, last = (_median(self.window, number, 3) for number in (0, 2))
        regained = max(_regained([_median(self.window, number, parts) for number in range(parts)]) for parts in _PARTS)
        least = last.low / first.high / (1 + regained) ** 2
        most = last.high / first.low * (1 + regained) ** 2 if first.low > 0 else math.inf
        percent = stats.Interval(*((ratio - 1) * 100 for ratio in (last.value / first.value, least, most)))
        return Slowdown(first, last, percent, regained * 100)

    @property
    def reasons(self) -> List[str]:
        """What slowed the device down meanwhile, as far as it tells."""
        return throttling.reasons(self.moments[0], throttling.worst(self.moments))


class Slowdown(NamedTuple):
    """Medians of the first and the last third in ms, and how much slower the last is, in percent.

    `regained_percent` is how much slower a part of the run surely was than one that came after it.
    """

    first: stats.Interval
    last: stats.Interval
    percent: stats.Interval
    regained_percent: float


def measure(predictor: Predictor, texts: Sequence[Item], seconds: float) -> Run:
    """Ask for the text of middle length among `texts` for so long: thirds then differ by nothing but their time."""
    moments = [throttling.now()]
    item = after_idle.middle(predictor, texts)

    def again() -> Iterator[Item]:
        begin = looked = time.perf_counter()
        while True:
            now = time.perf_counter()
            if now - looked >= _LOOK_S:
                moments.append(throttling.now())
                looked = now
            if now - begin >= seconds:
                return
            yield item

    for _ in range(bench.WARM_UP_TEXTS):
        predictor.predict(item)
    window = closed_loop.timed(predictor, again())
    moments.append(throttling.now())
    return Run(window, moments)


def _median(window: Window, number: int, parts: int) -> stats.Interval:
    """Of one of so many `parts` of a window, in ms; one is at least a spell, which two parts then share."""
    spells = len(window.spells)
    begin = number * spells // parts
    one = closed_loop.part(window, begin, max(math.ceil((number + 1) * spells / parts), begin + 1))
    return noise.percentile_interval([closed_loop.stretch(one)], 0.5, bench.CONFIDENCE)


def _regained(medians: Sequence[stats.Interval]) -> float:
    """The most by which one surely lies above a later one, as a fraction of that."""
    most, slowest_ms = 0.0, 0.0
    for median in medians:
        most = max(most, slowest_ms / median.high - 1)
        slowest_ms = max(slowest_ms, median.low)
    return most


def summary(run: Run) -> Dict[str, Any]:
    """For a receipt."""
    found = run.slowdown
    return {
        "seconds": round(run.window.contention.wall_ms / 1e3, 1),
        "n": len(run.window.samples),
        "first_third_p50_ms": round(found.first.value, 4),
        "last_third_p50_ms": round(found.last.value, 4),
        "slowdown_percent": round(found.percent.value, 2),
        "regained_percent": round(found.regained_percent, 2),
        "throttle": {"before": run.moments[0].as_json(), "worst": throttling.worst(run.moments).as_json()},
        "throttled_by": run.reasons if any(moment.told for moment in run.moments) else None,
        "contention": run.window.contention.as_json(),
    }


def check(run: Run, asked: Sustained) -> Check:
    """How much slower the last third is, with what throttled the device as the reason."""
    found = run.slowdown
    interval = found.percent
    verdict = stats.verdict_at_most(interval, asked.max_slowdown_percent)
    seconds = run.window.contention.wall_ms / 1e3
    detail = f"the last third of {seconds:.0f} s of one text after the other against the first"
    if found.regained_percent >= _WORTH_A_WORD_PERCENT:
        detail += f"; in between answers became {found.regained_percent:.1f} % faster again, so it is known no better"
    if verdict == stats.INCONCLUSIVE:
        beside = run.window.contention
        detail += "; the limit lies within the interval" if beside.quiet else f"; {beside.told()}"
    if run.reasons:
        detail += f"; {', '.join(run.reasons)}"
    elif verdict != stats.PASS:
        told = any(moment.told for moment in run.moments)
        detail += "; no throttling was counted" if told else "; this device does not tell whether it was throttled"
    return sampled(
        GATE,
        verdict,
        interval,
        limit=asked.max_slowdown_percent,
        unit="percent",
        n=len(run.window.samples),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )
