"""Sustained load: slowdown of a long run without pauses, and the throttling that the device reports meanwhile."""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, NamedTuple, Sequence

from edgepack_runtime.device import interference, throttling
from edgepack_runtime.device.interference import Interference
from edgepack_runtime.device.throttling import Throttle
from edgepack_runtime.gate import latency
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.gates import SustainedLimits, limit_named
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.texts import Item, length

GATE = limit_named("latency.sustained.max_slowdown_percent")
_POLL_S = 2.0  # between readings of the throttling counters; a device with many cores has many files


class SustainedRun(NamedTuple):
    """Latencies of one repeated text, the interference, and the throttling counters during the run."""

    times_ms: List[float]
    interference: Interference
    moments: List[Throttle]

    @property
    def medians_ms(self) -> List[intervals.Interval]:
        """Medians of the first and of the last third."""
        third = max(len(self.times_ms) // 3, 1)
        thirds = (self.times_ms[:third], self.times_ms[-third:])
        return [intervals.percentile_interval(times, 0.5, bench.CONFIDENCE) for times in thirds]

    @property
    def slowdown_percent(self) -> intervals.Interval:
        """Slowdown of the last third against the first, in percent; the ends combine the far ends of both."""
        first, last = self.medians_ms
        most = last.high / first.low if first.low > 0 else math.inf
        return intervals.Interval(
            *((ratio - 1) * 100 for ratio in (last.value / first.value, last.low / first.high, most))
        )

    @property
    def reasons(self) -> List[str]:
        """Causes of throttling during the run that the device reports."""
        return throttling.reasons(self.moments[0], throttling.worst(self.moments))


def measure(predictor: Predictor, texts: Sequence[Item], seconds: float) -> SustainedRun:
    """Predict the text of median length in `texts` for `seconds`, so that all thirds have the same work."""
    item = sorted(texts, key=length)[len(texts) // 2]
    for _ in range(bench.WARM_UP_TEXTS):
        predictor.predict(item)
    times_ms: List[float] = []
    moments = [throttling.read_throttle()]
    before = interference.read()
    begin = polled = now = time.perf_counter()
    while now - begin < seconds or not times_ms:
        times_ms.append(predictor.timed_predict(item)[1].total_ms)
        now = time.perf_counter()
        if now - polled >= _POLL_S:
            moments.append(throttling.read_throttle())
            polled = now
    moments.append(throttling.read_throttle())
    return SustainedRun(times_ms, interference.between(before, interference.read()), moments)


def summary(run: SustainedRun) -> Dict[str, Any]:
    """The receipt's `latency.sustained`."""
    first, last = run.medians_ms
    return {
        "seconds": round(run.interference.wall_ms / 1e3, 1),
        "n": len(run.times_ms),
        "first_third_p50_ms": round(first.value, 4),
        "last_third_p50_ms": round(last.value, 4),
        "slowdown_percent": round(run.slowdown_percent.value, 2),
        "throttle": {"before": run.moments[0].as_json(), "worst": throttling.worst(run.moments).as_json()},
        "throttled_by": run.reasons if any(moment.known for moment in run.moments) else None,
        "contention": run.interference.as_json(),
    }


def check(run: SustainedRun, asked: SustainedLimits) -> GateCheck:
    """Check of the slowdown; its detail names what throttled the device."""
    interval = run.slowdown_percent
    # Interference may slow down either third, so a disturbed run can neither pass nor fail.
    verdict = intervals.verdict_at_most(interval, asked.max_slowdown_percent)
    if run.interference.disturbed:
        verdict = intervals.INCONCLUSIVE
    _, why = latency.undisturbed(verdict, run.interference)
    seconds = run.interference.wall_ms / 1e3
    cause = joined(*run.reasons, by="list.comma")
    if not cause and verdict != intervals.PASS:
        known = any(moment.known for moment in run.moments)
        cause = message("sustained.none" if known else "sustained.unknown")
    return GateCheck.sampled(
        GATE,
        verdict,
        interval,
        limit=asked.max_slowdown_percent,
        n=len(run.times_ms),
        confidence=bench.CONFIDENCE,
        detail=joined(message("sustained.thirds", seconds=round(seconds, 3)), why, cause),
    )
