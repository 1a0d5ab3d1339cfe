"""The latency gates: text in to label out, batch 1, on texts drawn from the golden rows.

The same texts are timed in two windows, one after the other. Where the two medians differ by more than 10 % (the
threshold at which Triton Model Navigator accepts its windows), the machine and not the model was measured; so it was
where a limit is missed, or nearly, while others ran. That is done once more in a fresh process. What is then said:

- *fail* only where all that others can have cost leaves enough beyond the limit (`noise`), and the windows agree; where
  the machine goes through phases that nobody counts (`phases`), only if it would in the fastest of them;
- *pass* whatever others did, since they only add time; where the windows differ, with the worse one's upper bound,
  stretched by the ratio of the medians in case the trend goes on;
- *inconclusive* otherwise, with the reason.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from edgepack_runtime import bench, closed_loop, contention, noise, phases, stats, timed_texts
from edgepack_runtime.closed_loop import Window
from edgepack_runtime.contention import Contention
from edgepack_runtime.gate_limits import Check, Limits, sampled, would_decide
from edgepack_runtime.latency_limits import LengthBudget
from edgepack_runtime.predictor import Predictor, Split
from edgepack_runtime.texts import Item
from edgepack_runtime.timed_texts import Kind

MAX_DRIFT = 0.10
_LEAST_MS = 1e-6  # that a text takes, for ratios
_SHARES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
Say = Callable[[str], None]


class Timing(NamedTuple):
    """Two windows over the same texts, each in an order of its own, and in how many processes it was tried.

    `kinds` tells, for each window, of what kind each of its texts is, and `golden` of the texts that these were chosen
    from: how many have how many tokens.
    """

    windows: List[Window]
    kinds: List[List[Kind]]
    golden: List[Tuple[int, int]]
    processes: int = 1

    @property
    def samples(self) -> List[Split]:
        """Those of the usual texts."""
        return [sample for pair in zip(self.windows, self.kinds) for sample in _usual(*pair)]

    @property
    def medians_ms(self) -> List[float]:
        """Of the usual texts, for each window."""
        return [statistics.median(s.total_ms for s in _usual(*pair)) for pair in zip(self.windows, self.kinds)]

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

    @property
    def slowness(self) -> List[float]:
        """How many times as long each text took as in the window that was faster with it, in the order of timing.

        Texts differ in length, and only the machine is left in this: it took longer with one of the two for a while.
        """
        times = [[max(sample.total_ms, _LEAST_MS) for sample in window.samples] for window in self.windows]
        by_row = [sorted(range(len(kinds)), key=lambda place: kinds[place].row) for kinds in self.kinds]
        least = [list(one) for one in times]
        for places in zip(*by_row):  # of one text, in each window
            fastest = min(one[place] for one, place in zip(times, places))
            for one, place in zip(least, places):
                one[place] = fastest
        return [ms / fastest for pair in zip(times, least) for ms, fastest in zip(*pair)]

    def rows(self, asked: Asked) -> Set[int]:
        """Which texts were timed for a limit."""
        return {kind.row for kind in self.kinds[0] if asked.concerns(kind)}

    def design_effect(self, asked: Asked) -> float:
        """How many samples are worth one that is independent of the others.

        The limit is about texts as long as the golden rows. Where all of those were timed, only the machine's noise is
        left to chance, and each timing is a sample of it; else each text is one, however often it was timed. Texts that
        were timed more often than others count for more than they should, and all together for less (Kish's weighting
        effect: L. Kish, Survey Sampling (1965), 11.7).
        """
        times = Counter(kind.row for kind in self.kinds[0] if asked.concerns(kind))
        timed, squares = sum(times.values()), sum(count * count for count in times.values())
        there_are = sum(count for tokens, count in self.golden if asked.budget is None or asked.budget.holds(tokens))
        if len(times) >= there_are:
            return len(times) * squares / timed**2
        return len(self.windows) * squares / timed


class Asked(NamedTuple):
    """One limit: the name of its gate, the percentile (0 to 1), the most it may be, and of texts of which length."""

    gate: str
    fraction: float
    limit_ms: float
    budget: Optional[LengthBudget] = None

    def concerns(self, kind: Kind) -> bool:
        """Whether a text of this kind counts."""
        return kind.usual if self.budget is None else self.budget.holds(kind.tokens)


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
        timed = [asked for asked in _asked(limits) if emulated_why is None and _totals(first, asked)]
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
    totals, limit_ms = _totals(timing, asked), asked.limit_ms
    if not totals:
        detail = f"no golden row has {_lengths(asked.budget)}: give `data.test` such texts"
        return Check(asked.gate, stats.INCONCLUSIVE, None, None, None, limit_ms, "ms", 0, None, detail)
    interval, verdict, doubt = _judge(timing, asked)
    detail = "text in to label out, batch 1" + (f", {_lengths(asked.budget)}" if asked.budget else "")
    different = len(timing.rows(asked))
    detail += f"; {different} different texts" if different > 1 else "; one text only"
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


def _totals(timing: Timing, asked: Asked) -> List[float]:
    return [ms for stretch in _stretches(timing, asked) for ms in stretch.times_ms]


class _Judged(NamedTuple):
    """The interval that holds for a quiet machine, and its verdict.

    `doubt` is why there is none, if that is the machine: its phases, or others; empty where it is not.
    """

    interval: stats.Interval
    verdict: str
    doubt: str


def _judge(timing: Timing, asked: Asked) -> _Judged:
    """Nothing fails on an unstable machine, nor on one that goes through phases, unless it would in the fastest."""
    effect = timing.design_effect(asked)
    interval = noise.percentile_interval(_stretches(timing, asked), asked.fraction, bench.CONFIDENCE, effect)
    doubt = timing.contention.told() if _by_noise(timing, asked) else ""
    if not timing.stable:
        interval = _widened(timing, asked, interval.value)
        verdict = stats.verdict_at_most(interval, asked.limit_ms)
        verdict = stats.INCONCLUSIVE if verdict == stats.FAIL else verdict
    else:
        verdict = stats.verdict_at_most(interval, asked.limit_ms)
        found = phases.find(timing.slowness) if verdict == stats.FAIL else None
        if found:
            fastest_ms = _in_the_fastest(timing, asked, found)
            low = stats.percentile_interval(fastest_ms, asked.fraction, bench.CONFIDENCE, effect).low
            interval, doubt = interval._replace(low=min(low, interval.low)), found.told()
            verdict = stats.verdict_at_most(interval, asked.limit_ms)
    return _Judged(interval, verdict, doubt if verdict == stats.INCONCLUSIVE else "")


def _in_the_fastest(timing: Timing, asked: Asked, found: phases.Phases) -> List[float]:
    """What `_totals` would be, had the machine been in the fastest of the phases all the time."""
    slowness = timing.slowness
    steady = phases.throughout(slowness, found, found.fastest)
    kinds = [kind for window in timing.kinds for kind in window]
    samples = [sample for window in timing.windows for sample in window.samples]
    told = zip(kinds, samples, steady, slowness)
    return [sample.total_ms * as_fast / as_timed for kind, sample, as_fast, as_timed in told if asked.concerns(kind)]


def _by_noise(timing: Timing, asked: Asked) -> bool:
    """Whether the machine was not quiet, or the little that others did makes the difference to a fail."""
    effect = timing.design_effect(asked)
    as_timed = stats.percentile_interval(_totals(timing, asked), asked.fraction, bench.CONFIDENCE, effect)
    return not timing.contention.quiet or stats.verdict_at_most(as_timed, asked.limit_ms) == stats.FAIL


def refuse_if_emulated(verdict: str, detail: str, why: Optional[str]) -> Tuple[str, str]:
    """No verdict on time from an emulator: it is slower than any device, by no fixed factor."""
    if why is None:
        return verdict, detail
    return stats.INCONCLUSIVE, detail + f"; emulated ({why}): measure on the device itself"


def _usual(window: Window, kinds: Sequence[Kind]) -> List[Split]:
    return [sample for sample, kind in zip(window.samples, kinds) if kind.usual]


def _stretches(timing: Timing, asked: Asked) -> List[noise.Stretch]:
    pairs = zip(timing.windows, timing.kinds)
    return [closed_loop.stretch(window, [asked.concerns(kind) for kind in kinds]) for window, kinds in pairs]


def _widened(timing: Timing, asked: Asked, value: float) -> stats.Interval:
    """From the better window's low end to the worse one's high end, that times the ratio of their medians."""
    ends = [noise.percentile_interval([one], asked.fraction, bench.CONFIDENCE) for one in _stretches(timing, asked)]
    return stats.Interval(value, min(end.low for end in ends), max(end.high for end in ends) * (1 + timing.drift))
