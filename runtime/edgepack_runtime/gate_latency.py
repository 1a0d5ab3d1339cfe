"""The latency gates: text in to label out, batch 1, on texts drawn from the golden rows.

The same texts are timed in two windows, one after the other. Where the two medians differ by more than 10 % (the
threshold at which Triton Model Navigator accepts its windows), the machine and not the model was measured; so it was
where a limit is missed, or nearly, while others ran. That is done once more in a fresh process. What is then said:

- *fail* only where all that others can have cost leaves enough beyond the limit (`noise`), and the windows agree;
- *pass* whatever others did, since they only add time; where the windows differ, with the worse one's upper bound,
  stretched by the ratio of the medians in case the trend goes on;
- *inconclusive* otherwise, with the reason.
"""

from __future__ import annotations

import math
import random
import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import bench, closed_loop, contention, noise, stats
from edgepack_runtime.closed_loop import Window
from edgepack_runtime.contention import Contention
from edgepack_runtime.gate_accuracy import would_decide
from edgepack_runtime.gate_limits import Check, Limits, sampled
from edgepack_runtime.predictor import Predictor, Split
from edgepack_runtime.texts import Item

P50, P95 = 0.5, 0.95
MAX_DRIFT = 0.10
_BUDGET_MS = 5000.0  # for both windows together, unless the percentile needs more samples than fit
_MOST_TEXTS = 500
_SEED = 20240229  # the same texts on every device and in every process
Say = Callable[[str], None]


class Timing(NamedTuple):
    """Two windows over the same texts, and in how many processes it was tried."""

    windows: List[Window]
    processes: int = 1

    @property
    def samples(self) -> List[Split]:
        return [sample for window in self.windows for sample in window.samples]

    @property
    def medians_ms(self) -> List[float]:
        return [window.median_ms for window in self.windows]

    @property
    def contention(self) -> Contention:
        """Of both windows."""
        return contention.together([window.contention for window in self.windows])

    @property
    def drift(self) -> float:
        """How much larger the larger median is, as a fraction."""
        return max(self.medians_ms) / min(self.medians_ms) - 1

    @property
    def stable(self) -> bool:
        return self.drift <= MAX_DRIFT


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
    windows = []
    for number in (1, 2):
        windows.append(closed_loop.timed(predictor, chosen))
        progress(f"latency: window {number} of 2: {windows[-1].median_ms:.3f} ms")
    return Timing(windows)


def settle(
    first: Timing, limits: Limits, emulated_why: Optional[str], again: Callable[[], List[Window]], progress: Say
) -> Timing:
    """`first` where it can be judged; else what `again` measures, in a fresh process."""
    if not first.stable:
        why = f"unstable, the medians differ by {first.drift:.0%}"
    elif emulated_why is None and any(_in_doubt(first, *asked) for asked in _asked(limits)):
        why = first.contention.told()
    else:
        return first
    progress(f"latency: {why}: once more in a fresh process")
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
        "contention": timing.contention.as_json(),
    }


def checks(timing: Timing, limits: Limits, emulated_why: Optional[str]) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    return [_check(timing, *asked, emulated_why) for asked in _asked(limits)]


def _asked(limits: Limits) -> List[Tuple[str, float, float]]:
    """Of each limit the name of its gate, the percentile as a fraction, and the most that it may be, in ms."""
    asked = (("latency.p50_ms", P50, limits.p50_ms), ("latency.p95_ms", P95, limits.p95_ms))
    return [(name, fraction, limit) for name, fraction, limit in asked if limit is not None]


def _check(timing: Timing, name: str, fraction: float, limit_ms: float, emulated_why: Optional[str]) -> Check:
    interval, verdict = _judged(timing, fraction, limit_ms)
    n = len(timing.samples)
    detail = "text in to label out, batch 1"
    if not timing.stable:
        detail += f"; unstable: the medians of two windows differ by {timing.drift:.0%}, twice"
    if verdict == stats.INCONCLUSIVE:
        if _by_noise(timing, fraction, limit_ms):
            detail += f"; {timing.contention.told()}: measure on an idle machine"
        elif timing.stable:
            within = sum(sample.total_ms <= limit_ms for sample in timing.samples) / n
            detail += "; " + would_decide(stats.n_for_proportion(within, fraction, bench.CONFIDENCE), "samples")
    verdict, detail = refuse_if_emulated(verdict, detail, emulated_why)
    return sampled(name, verdict, interval, limit=limit_ms, unit="ms", n=n, confidence=bench.CONFIDENCE, detail=detail)


def _judged(timing: Timing, fraction: float, limit_ms: float) -> Tuple[stats.Interval, str]:
    """The interval that holds for a quiet machine, and its verdict; nothing fails on an unstable one."""
    interval = noise.percentile_interval(_spells(timing.windows), fraction, bench.CONFIDENCE)
    if timing.stable:
        return interval, stats.verdict_at_most(interval, limit_ms)
    interval = _widened(timing, fraction, interval.value)
    verdict = stats.verdict_at_most(interval, limit_ms)
    return interval, stats.INCONCLUSIVE if verdict == stats.FAIL else verdict


def _in_doubt(timing: Timing, name: str, fraction: float, limit_ms: float) -> bool:
    """Whether others are the reason that there is no verdict."""
    verdict = _judged(timing, fraction, limit_ms)[1]
    return verdict == stats.INCONCLUSIVE and _by_noise(timing, fraction, limit_ms)


def _by_noise(timing: Timing, fraction: float, limit_ms: float) -> bool:
    """Whether the machine was not quiet, or the little that others did makes the difference to a fail."""
    totals = [sample.total_ms for sample in timing.samples]
    as_timed = stats.percentile_interval(totals, fraction, bench.CONFIDENCE)
    return not timing.contention.quiet or stats.verdict_at_most(as_timed, limit_ms) == stats.FAIL


def refuse_if_emulated(verdict: str, detail: str, why: Optional[str]) -> Tuple[str, str]:
    """No verdict on time from an emulator: it is slower than any device, by no fixed factor."""
    if why is None:
        return verdict, detail
    return stats.INCONCLUSIVE, detail + f"; emulated ({why}): measure on the device itself"


def _spells(windows: Sequence[Window]) -> List[noise.Spell]:
    """The timings between two looks at the counters, with what others can have taken of them."""
    found = []
    for window in windows:
        slack_ms = contention.TICK_MS / len(window.spells)  # all looks together are wrong by no more than a tick
        begin = 0
        for spell in window.spells:
            times = [sample.total_ms for sample in window.samples[begin : begin + spell.texts]]
            found.append(noise.Spell(times, spell.contention.lost_ms + slack_ms))
            begin += spell.texts
    return found


def _widened(timing: Timing, fraction: float, value: float) -> stats.Interval:
    """From the better window's low end to the worse one's high end, that times the ratio of their medians."""
    ends = [noise.percentile_interval(_spells([one]), fraction, bench.CONFIDENCE) for one in timing.windows]
    return stats.Interval(value, min(end.low for end in ends), max(end.high for end in ends) * (1 + timing.drift))
