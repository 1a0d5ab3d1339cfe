"""Whether answers become slower while texts come one after the other for a long time, and what slowed them down."""

from __future__ import annotations

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
_LOOK_S = 2.0  # between two looks at what throttles; a device with many cores has many files


class Run(NamedTuple):
    """One text again and again; `moments` are what the device told of throttling, from the begin to the end."""

    window: Window
    moments: List[Throttle]

    @property
    def reasons(self) -> List[str]:
        """What slowed the device down meanwhile, as far as it tells."""
        return throttling.reasons(self.moments[0], throttling.worst(self.moments))


class Slowdown(NamedTuple):
    """Medians of the first and the last third in ms, and how much slower the last is, in percent."""

    first: stats.Interval
    last: stats.Interval
    percent: stats.Interval


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


def slowdown(run: Run) -> Slowdown:
    """The last third against the first, each with the interval of its median that holds on a quiet machine.

    The ends of the ratio are taken from the far ends of both, so it is wider than either would have to be.
    """
    spells = len(run.window.spells)
    third = math.ceil(spells / 3)
    parts = (closed_loop.part(run.window, 0, third), closed_loop.part(run.window, spells - third, spells))
    first, last = (noise.percentile_interval([closed_loop.stretch(one)], 0.5, bench.CONFIDENCE) for one in parts)
    most = (last.high / first.low - 1) * 100 if first.low > 0 else math.inf
    return Slowdown(
        first,
        last,
        stats.Interval((last.value / first.value - 1) * 100, (last.low / first.high - 1) * 100, most),
    )


def summary(run: Run) -> Dict[str, Any]:
    """For a receipt."""
    found = slowdown(run)
    return {
        "seconds": round(run.window.contention.wall_ms / 1e3, 1),
        "n": len(run.window.samples),
        "first_third_p50_ms": round(found.first.value, 4),
        "last_third_p50_ms": round(found.last.value, 4),
        "slowdown_percent": round(found.percent.value, 2),
        "throttle": {"before": run.moments[0].as_json(), "worst": throttling.worst(run.moments).as_json()},
        "throttled_by": run.reasons if any(moment.told for moment in run.moments) else None,
        "contention": run.window.contention.as_json(),
    }


def check(run: Run, asked: Sustained) -> Check:
    """How much slower the last third is, with what throttled the device as the reason."""
    found = slowdown(run).percent
    verdict = stats.verdict_at_most(found, asked.max_slowdown_percent)
    seconds = run.window.contention.wall_ms / 1e3
    detail = f"the last third of {seconds:.0f} s of one text after the other against the first"
    if verdict == stats.INCONCLUSIVE:
        beside = run.window.contention
        detail += "; the limit lies within the interval" if beside.quiet else f"; {beside.told()}"
    if verdict != stats.PASS:
        why = ", ".join(run.reasons) or "no throttling was counted"
        told = any(moment.told for moment in run.moments)
        detail += f"; {why if told else 'this device does not tell whether it was throttled'}"
    return sampled(
        GATE,
        verdict,
        found,
        limit=asked.max_slowdown_percent,
        unit="percent",
        n=len(run.window.samples),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )
