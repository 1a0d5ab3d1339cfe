"""The latency gates: text in to label out, batch 1, on texts drawn from the golden rows.

The same texts are timed in two windows, one after the other. Where the two medians differ by more than 10 % (the
threshold at which Triton Model Navigator accepts its windows), the machine and not the model was measured; that is
done once more in a fresh process. If that is no better, only a clear pass is called one: the worse window's upper
bound, stretched by the ratio of the medians in case the trend goes on, must still keep to the limit. Nothing fails
on an unstable machine.
"""

from __future__ import annotations

import math
import random
import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import bench, stats
from edgepack_runtime.gate_limits import Check, Limits, sampled, would_decide
from edgepack_runtime.predictor import Predictor, Split
from edgepack_runtime.texts import Item

P50, P95 = 0.5, 0.95
MAX_DRIFT = 0.10
_BUDGET_MS = 5000.0  # for both windows together, unless the percentile needs more samples than fit
_MOST_TEXTS = 500
_SEED = 20240229  # the same texts on every device and in every process
Say = Callable[[str], None]


class Timing(NamedTuple):
    """Two windows over the same texts, in ms, and in how many processes it was tried."""

    windows: List[List[Split]]
    processes: int = 1

    @property
    def samples(self) -> List[Split]:
        return [sample for window in self.windows for sample in window]

    @property
    def medians_ms(self) -> List[float]:
        return [statistics.median(totals_ms(window)) for window in self.windows]

    @property
    def drift(self) -> float:
        """How much larger the larger median is, as a fraction."""
        return max(self.medians_ms) / min(self.medians_ms) - 1

    @property
    def stable(self) -> bool:
        return self.drift <= MAX_DRIFT


def totals_ms(samples: Sequence[Split]) -> List[float]:
    return [sample.total_ms for sample in samples]


def measure(predictor: Predictor, texts: Sequence[Item], progress: Say) -> Timing:
    """Time `predictor` in two windows over the same up to 500 of `texts`, in a seeded order.

    There are as many as fit into the time budget, at least the 65 that p95 needs in each window; where `texts` are
    fewer than that, they are gone through again.
    """
    progress("latency: two windows")
    drawn = random.Random(_SEED).sample(list(texts), len(texts))
    for text in drawn[: bench.WARM_UP_TEXTS]:
        predictor.predict(text)
    probe = statistics.median(predictor.timed_predict(text)[1].total_ms for text in drawn[: bench.WARM_UP_TEXTS])
    needed = math.ceil(stats.n_for_percentile(P95, bench.CONFIDENCE) / 2)
    count = max(needed, min(_MOST_TEXTS, int(_BUDGET_MS / 2 / max(probe, 1e-3))))
    chosen = [drawn[i % len(drawn)] for i in range(count)]
    return Timing(bench.take_turns([predictor], chosen, 2, lambda line: progress("latency: " + line))[0])


def settle(first: Timing, again: Callable[[], List[List[Split]]], progress: Say) -> Timing:
    """`first` where it is stable; else what `again` measures, in a fresh process."""
    if first.stable:
        return first
    progress(f"latency: unstable, the medians differ by {first.drift:.0%}: once more in a fresh process")
    return Timing(again(), processes=2)


def summary(timing: Timing, threads: int) -> Dict[str, Any]:
    """The receipt's `latency`."""
    figures = bench.summarize(timing.samples)
    del figures["p99_ms"]  # no gate asks for it, and it takes 662 samples
    return {
        **figures,
        "threads": threads,
        "stable": timing.stable,
        "window_p50_ms": [round(value, 4) for value in timing.medians_ms],
        "processes": timing.processes,
    }


def checks(timing: Timing, limits: Limits, emulated_why: Optional[str]) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    asked = (("latency.p50_ms", P50, limits.p50_ms), ("latency.p95_ms", P95, limits.p95_ms))
    return [_check(timing, name, part, limit, emulated_why) for name, part, limit in asked if limit is not None]


def _check(timing: Timing, name: str, fraction: float, limit_ms: float, emulated_why: Optional[str]) -> Check:
    totals = totals_ms(timing.samples)
    interval = stats.percentile_interval(totals, fraction, bench.CONFIDENCE)
    detail = "text in to label out, batch 1"
    if not timing.stable:
        interval = _widened(timing, fraction, interval.value)
        detail += f"; unstable: the medians of two windows differ by {timing.drift:.0%}, twice"
    verdict = stats.verdict_at_most(interval, limit_ms)
    if not timing.stable and verdict == stats.FAIL:
        verdict = stats.INCONCLUSIVE
    if timing.stable and verdict == stats.INCONCLUSIVE:
        within = sum(total <= limit_ms for total in totals) / len(totals)
        detail += "; " + would_decide(stats.n_for_proportion(within, fraction, bench.CONFIDENCE), "samples")
    verdict, detail = refuse_if_emulated(verdict, detail, emulated_why)
    return sampled(
        name, verdict, interval, limit=limit_ms, unit="ms", n=len(totals), confidence=bench.CONFIDENCE, detail=detail
    )


def refuse_if_emulated(verdict: str, detail: str, why: Optional[str]) -> Tuple[str, str]:
    """No verdict on time from an emulator: it is slower than any device, by no fixed factor."""
    if why is None:
        return verdict, detail
    return stats.INCONCLUSIVE, detail + f"; emulated ({why}): measure on the device itself"


def _widened(timing: Timing, fraction: float, value: float) -> stats.Interval:
    """From the better window's low end to the worse one's high end, that times the ratio of their medians."""
    ends = [stats.percentile_interval(totals_ms(window), fraction, bench.CONFIDENCE) for window in timing.windows]
    return stats.Interval(value, min(end.low for end in ends), max(end.high for end in ends) * (1 + timing.drift))
