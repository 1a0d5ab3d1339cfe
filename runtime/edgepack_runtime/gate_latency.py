"""The latency gates: text in to label out, batch 1, on texts drawn from the golden rows.

The same texts are timed in two windows, one after the other. Where the two medians differ by more than 10 % (the
threshold at which Triton Model Navigator accepts its windows), the machine and not the model was measured; so it was
where a limit is missed, or nearly, while others ran. That is done once more in a fresh process. What is then said:

- *fail* only where all that others can have cost leaves enough beyond the limit (`noise`), and the windows agree; where
  the machine goes through phases that nobody counts (`phases`), only if it would in the fastest of them;
- *pass* whatever others did, since they only add time; where the machine goes through phases, only if it would in the
  slowest of them, or if these were so many that their share of the time is known; where the windows differ, with the
  worse one's upper bound, stretched by the ratio of the medians in case the trend goes on;
- *inconclusive* otherwise, with the reason.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import bench, closed_loop, noise, phases, stats, timed_texts
from edgepack_runtime.gate_limits import Check, Limits, sampled, would_decide
from edgepack_runtime.latency_limits import LengthBudget
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item
from edgepack_runtime.timing import Asked, Timing
from edgepack_runtime.wording import counted

_SHARES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
Say = Callable[[str], None]


def measure(predictor: Predictor, texts: Sequence[Item], limits: Limits, progress: Say) -> Timing:
    """Time `predictor` in two windows over the same of `texts` (`timed_texts.choose`)."""
    progress("latency: two windows")
    drawn = timed_texts.shuffled(texts)
    tokens = [predictor.tokens(text) if limits.latency.by_length else 0 for text in drawn]
    for text in drawn[: bench.WARM_UP_TEXTS]:
        predictor.predict(text)
    probe = statistics.median(predictor.timed_predict(text)[1].total_ms for text in drawn[: bench.WARM_UP_TEXTS])
    chosen = timed_texts.choose(drawn, limits, probe, tokens)
    timing = Timing([], [], sorted(Counter(tokens).items()))
    for number in range(timed_texts.WINDOWS):
        ordered = timed_texts.in_order(chosen, number)
        timing.kinds.append([text.kind for text in ordered])
        timing.windows.append(closed_loop.timed(predictor, [text.item for text in ordered]))
        progress(f"latency: window {number + 1} of {timed_texts.WINDOWS}: {timing.medians_ms[-1]:.3f} ms")
    return timing


def settle(
    first: Timing, limits: Limits, emulated_why: Optional[str], again: Callable[[], Timing], progress: Say
) -> Timing:
    """`first` where it can be judged; else what `again` measures, in a fresh process."""
    if not first.stable:
        why = f"unstable, the medians differ by {first.drift:.0%}"
    else:
        timed = [asked for asked in _asked(limits) if emulated_why is None and first.totals_ms(asked)]
        why = next((doubt for doubt in (_judge(first, asked).doubt for asked in timed) if doubt), "")
    if not why:
        return first
    progress(f"latency: {why}: once more in a fresh process")
    return again()._replace(processes=2)


def summary(timing: Timing, threads: int) -> Dict[str, Any]:
    """The receipt's `latency`."""
    return {
        **bench.summarize(timing.samples),
        "distribution": distribution([sample.total_ms for sample in timing.samples]),
        "threads": threads,
        "stable": timing.stable,
        "window_p50_ms": [round(value, 4) for value in timing.medians_ms],
        "processes": timing.processes,
        "contention": timing.contention.as_json(),
    }


def distribution(totals_ms: Sequence[float]) -> Dict[str, float]:
    """How long answers took, as at most eleven figures in ms: `min_ms`, `p1_ms` to `p99_ms`, `max_ms`.

    They are of the samples themselves, whatever others did meanwhile (`noise` counts in the checks alone). A percentile
    is left out where the samples are too few to bound it from outside (p1 and p99 take 662); no sample, no figure.
    """
    ordered = sorted(totals_ms)
    if not ordered:
        return {}
    enough = [part for part in _SHARES if len(ordered) >= stats.n_for_percentile(max(part, 1 - part), bench.CONFIDENCE)]
    figures = {f"p{round(100 * part)}_ms": round(stats.percentile(ordered, part), 4) for part in enough}
    return {"min_ms": round(ordered[0], 4), **figures, "max_ms": round(ordered[-1], 4)}


def checks(timing: Timing, limits: Limits, emulated_why: Optional[str]) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    return [_check(timing, asked, emulated_why) for asked in _asked(limits)]


def _asked(limits: Limits) -> List[Asked]:
    found = [Asked(f"latency.{key}", part, limit) for key, part, limit in limits.latency.percentiles.asked()]
    for budget in limits.latency.by_length:
        name = f"latency.max_tokens_{budget.max_tokens}"
        found += [Asked(f"{name}.{key}", part, limit, budget) for key, part, limit in budget.limits.asked()]
    return found


def _check(timing: Timing, asked: Asked, emulated_why: Optional[str]) -> Check:
    totals, limit_ms = timing.totals_ms(asked), asked.limit_ms
    if not totals:
        detail = f"no golden row has {_lengths(asked.budget)}: give `data.test` such texts"
        return Check(asked.gate, stats.INCONCLUSIVE, None, None, None, limit_ms, "ms", 0, None, detail)
    interval, verdict, doubt = _judge(timing, asked)
    detail = "text in to label out, batch 1" + (f", {_lengths(asked.budget)}" if asked.budget else "")
    detail += f"; texts of {counted(len(timing.rows(asked)), 'row')}"
    if not timing.stable:
        detail += f"; unstable: the medians of two windows differ by {timing.drift:.0%}, twice"
    if verdict == stats.INCONCLUSIVE:
        if doubt:
            detail += f"; {doubt}: measure on an idle machine"
        elif timing.stable:
            within = sum(total <= limit_ms for total in totals) / len(totals)
            alone = stats.n_for_proportion(within, asked.fraction, bench.CONFIDENCE)
            detail += "; " + would_decide(alone and math.ceil(alone * timing.design_effect(asked)), "samples")
    verdict, detail = refuse_if_emulated(verdict, detail, emulated_why)
    return sampled(
        asked.gate,
        verdict,
        interval,
        limit=limit_ms,
        unit="ms",
        n=len(totals),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )


def _lengths(budget: Optional[LengthBudget]) -> str:
    return f"{budget.above_tokens + 1} to {budget.max_tokens} tokens" if budget else "any length"


class _Judged(NamedTuple):
    """The interval that holds for a quiet machine, and its verdict.

    `doubt` is why there is none, if that is the machine: its phases, or others; empty where it is not.
    """

    interval: stats.Interval
    verdict: str
    doubt: str


def _judge(timing: Timing, asked: Asked) -> _Judged:
    """Nothing fails on an unstable machine; where there are phases, nothing passes or fails that might not without."""
    effect = timing.design_effect(asked)
    interval = noise.percentile_interval(timing.stretches(asked), asked.fraction, bench.CONFIDENCE, effect)
    doubt = timing.contention.told() if _by_noise(timing, asked) else ""
    if not timing.stable:
        interval = _widened(timing, asked, interval.value)
        verdict = stats.verdict_at_most(interval, asked.limit_ms)
        verdict = stats.INCONCLUSIVE if verdict == stats.FAIL else verdict
    else:
        verdict = stats.verdict_at_most(interval, asked.limit_ms)
        course = timing.course() if verdict != stats.INCONCLUSIVE else None
        if course:
            interval, doubt = _through_phases(timing, asked, course, interval), course.phases.told()
            verdict = stats.verdict_at_most(interval, asked.limit_ms)
    return _Judged(interval, verdict, doubt if verdict == stats.INCONCLUSIVE else "")


def _through_phases(timing: Timing, asked: Asked, course: phases.Course, interval: stats.Interval) -> stats.Interval:
    """`interval` with ends that hold whatever the share of the phases is that the machine goes through.

    It is never faster than in the fastest, nor slower than in the slowest. The high end is lower than the latter where
    there were so many phases that their share is known: where timings beyond the limit come together, they are
    worth fewer, as many fewer as the interval of their share is wider than one of independent timings (batch means).
    Where they do come together, only that is known: a phase may slow some texts down far more than others.
    """
    effect, totals = timing.design_effect(asked), timing.totals_ms(asked)

    def around(times_ms: Sequence[float], worth: float) -> stats.Interval:
        return stats.percentile_interval(times_ms, asked.fraction, bench.CONFIDENCE, worth)

    low = around(timing.throughout_ms(asked, course, course.phases.fastest), effect).low
    high = around(timing.throughout_ms(asked, course, course.phases.slowest), effect).high
    beyond = [float(ms > asked.limit_ms) for ms in totals]
    known = around(totals, effect + phases.design_effect(beyond, bench.CONFIDENCE) - 1).high
    highest = known if phases.find(beyond) else min(high, known)
    return stats.Interval(interval.value, min(low, interval.low), max(highest, interval.high))


def _by_noise(timing: Timing, asked: Asked) -> bool:
    """Whether the machine was not quiet, or the little that others did makes the difference to a fail."""
    effect = timing.design_effect(asked)
    as_timed = stats.percentile_interval(timing.totals_ms(asked), asked.fraction, bench.CONFIDENCE, effect)
    return not timing.contention.quiet or stats.verdict_at_most(as_timed, asked.limit_ms) == stats.FAIL


def refuse_if_emulated(verdict: str, detail: str, why: Optional[str]) -> Tuple[str, str]:
    """No verdict on time from an emulator: it is slower than any device, by no fixed factor."""
    if why is None:
        return verdict, detail
    return stats.INCONCLUSIVE, detail + f"; emulated ({why}): measure on the device itself"


def _widened(timing: Timing, asked: Asked, value: float) -> stats.Interval:
    """From the better window's low end to the worse one's high end, that times the ratio of their medians."""
    ends = [noise.percentile_interval([one], asked.fraction, bench.CONFIDENCE) for one in timing.stretches(asked)]
    return stats.Interval(value, min(end.low for end in ends), max(end.high for end in ends) * (1 + timing.drift))
