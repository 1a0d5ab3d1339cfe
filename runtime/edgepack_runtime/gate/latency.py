"""Latency gates: text in to label out, batch 1, on texts from the golden rows.

Texts are sampled evenly over all lengths, as many as the percentiles need, and timed in two windows with the same
lengths. If the medians of the windows differ by more than 10 % (as in Triton Model Navigator), or a limit is missed
while other programs run, everything is measured again in a fresh process, in three processes at most. Then

- *pass*: the percentile's interval is below the limit, even if other programs ran, since they only add time; if the
  windows differ, the slower one must be below the limit too;
- *fail*: the interval is above the limit, the windows agree, and no other programs ran;
- *inconclusive* otherwise, with the reason.
"""

from __future__ import annotations

import heapq
import random
import statistics
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from edgepack_runtime.device import interference
from edgepack_runtime.device.interference import Interference
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.loaded_model import Split
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.gates import P95, LatencyLimits, LengthLimits, by_length, limit_named, percentiles
from edgepack_runtime.schema.receipt import Contention, GateCheck, GateLatency
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import Item, length

T = TypeVar("T")
WINDOWS = 2
MAX_DRIFT = 0.10
PROCESSES = 3  # at most, until one decides
_SEED = 20240229  # the same texts on every device and in every process
_BUDGET_MS = 5000.0  # for all windows together, unless the percentiles need more samples
_MOST_TEXTS = 1000
_FRACTIONS = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)  # percentiles of `distribution`


class Kind(NamedTuple):
    """Number of tokens of a timed text (0 without limits by length), and whether it is part of the overall figures.

    Texts added for the limit of their length alone are not, so that overall figures keep the golden rows' lengths.
    """

    tokens: int
    usual: bool


class Lengths(NamedTuple):
    """Texts of more than `above` and at most `most` tokens, [CLS] and [SEP] among them."""

    above: int
    most: int

    def holds(self, tokens: int) -> bool:
        """Whether a text of so many tokens is in the range."""
        return self.above < tokens <= self.most


class TimedText(NamedTuple):
    """A text or pair to time."""

    item: Item
    kind: Kind


class TimingWindow(NamedTuple):
    """Timings of texts, the kind of each, and the interference during the window."""

    samples: List[Split]
    kinds: List[Kind]
    interference: Interference

    @property
    def usual(self) -> List[Split]:
        """The timings of the overall figures."""
        return [sample for sample, kind in zip(self.samples, self.kinds) if kind.usual]

    def totals_ms(self, asked: Asked) -> List[float]:
        """The timings that a limit applies to."""
        return [sample.total_ms for sample, kind in zip(self.samples, self.kinds) if asked.concerns(kind)]

    def as_json(self) -> Dict[str, Any]:
        """JSON object, to pass a window between processes."""
        return self._asdict()

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> TimingWindow:
        """Restore a window from `as_json`."""
        samples = [Split(*sample) for sample in row["samples"]]
        return cls(samples, [Kind(*kind) for kind in row["kinds"]], Interference(*row["interference"]))


class Timing(NamedTuple):
    """Two windows, and the number of processes that were measured until these."""

    windows: List[TimingWindow]
    processes: int = 1

    @property
    def samples(self) -> List[Split]:
        """The timings of the overall figures, of both windows."""
        return [sample for window in self.windows for sample in window.usual]

    @property
    def medians_ms(self) -> List[float]:
        """Median of the overall figures, per window."""
        return [statistics.median(sample.total_ms for sample in window.usual) for window in self.windows]

    @property
    def interference(self) -> Interference:
        """Interference during both windows."""
        return interference.together([window.interference for window in self.windows])

    @property
    def drift(self) -> float:
        """Relative difference of the medians, as a fraction."""
        return max(self.medians_ms) / min(self.medians_ms) - 1

    @property
    def stable(self) -> bool:
        return self.drift <= MAX_DRIFT

    def totals_ms(self, asked: Asked) -> List[float]:
        """The timings that a limit applies to, of both windows."""
        return [ms for window in self.windows for ms in window.totals_ms(asked)]


class Asked(NamedTuple):
    """One limit: its gate's name, the percentile (0 to 1), its maximum in ms, and the text lengths it applies to."""

    gate: str
    fraction: float
    limit_ms: float
    lengths: Optional[Lengths] = None

    def concerns(self, kind: Kind) -> bool:
        """Whether the limit applies to a text of this kind."""
        return kind.usual if self.lengths is None else self.lengths.holds(kind.tokens)


def measure(predictor: Predictor, texts: Sequence[Item], limits: LatencyLimits, progress: Log) -> Timing:
    """Time `predictor` in two windows, on texts that `choose` selects from `texts`."""
    progress(f"latency: measured in {WINDOWS} windows, one after the other")
    drawn = shuffled(texts)
    tokens = [predictor.text_model.tokens(text) if limits.by_length else 0 for text in drawn]
    for text in drawn[: bench.WARM_UP_TEXTS]:
        predictor.predict(text)
    probe_ms = statistics.median(predictor.timed_predict(text)[1].total_ms for text in drawn[: bench.WARM_UP_TEXTS])
    count = max(_needed(limits), min(_MOST_TEXTS, int(_BUDGET_MS / max(probe_ms, 1e-3))))
    chosen = choose(drawn, limits, count, tokens, [predictor.needs_encoder(text) for text in drawn])
    timing = Timing([])
    for number in range(WINDOWS):
        # Alternate texts in order of length, so that both windows have the same lengths; shuffle within the window.
        ordered = random.Random(_SEED + number).sample(chosen[number::WINDOWS], len(chosen[number::WINDOWS]))
        before = interference.read()
        samples = _timed(predictor, ordered, f"latency: window {number + 1} of {WINDOWS}", progress)
        beside = interference.between(before, interference.read())
        timing.windows.append(TimingWindow(samples, [text.kind for text in ordered], beside))
        progress(f"latency: window {number + 1} of {WINDOWS}: {timing.medians_ms[-1]:.3f} ms")
    return timing


def _timed(predictor: Predictor, texts: Sequence[TimedText], window: str, progress: Log) -> List[Split]:
    """The timings of `texts`, with lines of progress if they take long."""
    samples: List[Split] = []
    pace = Pace()
    for text in texts:
        samples.append(predictor.timed_predict(text.item)[1])
        if pace.is_due():
            progress(f"{window}, {len(samples)} of {len(texts)}")
    return samples


def shuffled(texts: Sequence[T]) -> List[T]:
    """`texts` in a seeded order."""
    return random.Random(_SEED).sample(list(texts), len(texts))


def choose(
    drawn: Sequence[Item], limits: LatencyLimits, count: int, tokens: Sequence[int], by_encoder: Sequence[bool]
) -> List[TimedText]:
    """Select `count` of `drawn` to time, evenly over all lengths, in order of length.

    Texts repeat if there are too few. Lengths with a limit that are rare among them get additional texts.

    Args:
        tokens: number of tokens of each of `drawn`; 0 without limits by length.
        by_encoder: whether the encoder runs for each of `drawn`.
    """
    lengths = [length(item) for item in drawn]
    # Texts that a linear model answers alone come first: both windows have the same share of them.
    order = list(zip(by_encoder, lengths))
    chosen = [(place, True) for place in _evenly(range(len(drawn)), order, count)]
    for about, budget in _by_length(limits):
        times = {place: 0 for place, held in enumerate(tokens) if about.holds(held)}
        for place, _ in chosen:
            if place in times:
                times[place] += 1
        chosen += [(place, False) for place in _least_often(times, _needed(budget) - sum(times.values()))]
    return [TimedText(drawn[place], Kind(tokens[place], usual)) for place, usual in chosen]


def _evenly(places: Iterable[int], order: Sequence[Tuple[bool, int]], count: int) -> List[int]:
    """`count` of `places`, evenly along their order; places repeat if there are fewer."""
    ordered = sorted(places, key=lambda place: order[place])
    return [ordered[int((number + 0.5) * len(ordered) / count)] for number in range(count)]


def _least_often(times: Mapping[int, int], count: int) -> List[int]:
    """`count` places, each time the one with the lowest count so far; `times` holds the initial counts."""
    queue = [(taken, place) for place, taken in times.items()]
    heapq.heapify(queue)
    found = []
    for _ in range(count if queue else 0):
        taken, place = queue[0]
        found.append(place)
        heapq.heapreplace(queue, (taken + 1, place))
    return found


def _by_length(limits: LatencyLimits) -> Iterator[Tuple[Lengths, LengthLimits]]:
    """The limits by length, each with the lengths that it applies to."""
    above = 0
    for budget in limits.by_length:
        yield Lengths(above, budget.max_tokens), budget
        above = budget.max_tokens


def _needed(limits: Union[LatencyLimits, LengthLimits]) -> int:
    """Samples that bound the highest limited percentile, and at least p95 (p95 130, p99 662)."""
    fraction = max([P95, *(part for _, part, _ in percentiles(limits))])
    return intervals.n_for_percentile(fraction, bench.CONFIDENCE)


def settle(
    first: Timing, limits: LatencyLimits, emulated_why: Optional[str], again: Callable[[], Timing], progress: Log
) -> Timing:
    """The first timing that decides, of `first` and those of `again` in fresh processes; else the last one.

    To take the first that decides does not pass a slow model: others only add time.
    """
    timing = first
    for number in range(2, PROCESSES + 1):
        why = _undecided(timing, limits, emulated_why)
        if not why:
            break
        progress(f"latency: {why}; measuring again in a new process ({number} of {PROCESSES} at most)")
        timing = again()._replace(processes=number)
    return timing


def _undecided(timing: Timing, limits: LatencyLimits, emulated_why: Optional[str]) -> str:
    """Why to measure again; empty if there is no reason."""
    timed = [asked for asked in asked_of(limits) if timing.totals_ms(asked)]
    missed = any(_judge(timing, asked)[1] != intervals.PASS for asked in timed)
    if not timing.stable and (missed or timing.processes == 1):
        return f"unstable, the medians of {WINDOWS} windows differ by {timing.drift:.0%}"
    if missed and timing.interference.disturbed and emulated_why is None:
        return timing.interference.describe()
    return ""


def summary(timing: Timing, threads: int) -> GateLatency:
    """The receipt's `latency`, without a sustained run and a comparison."""
    return GateLatency(
        **bench.summarize(timing.samples),
        distribution=distribution([sample.total_ms for sample in timing.samples]),
        threads=threads,
        stable=timing.stable,
        window_p50_ms=tuple(round(value, 4) for value in timing.medians_ms),
        processes=timing.processes,
        contention=Contention(**timing.interference.as_json()),
    )


def distribution(totals_ms: Sequence[float]) -> Dict[str, float]:
    """Distribution of latencies in at most eleven values: `min_ms`, `p1_ms` to `p99_ms`, `max_ms`.

    Percentiles that the samples are too few to bound are left out (p1 and p99 need 662). Empty without samples.
    """
    ordered = sorted(totals_ms)
    if not ordered:
        return {}
    enough = [
        part for part in _FRACTIONS if len(ordered) >= intervals.n_for_percentile(max(part, 1 - part), bench.CONFIDENCE)
    ]
    figures = {f"p{round(100 * part)}_ms": round(intervals.percentile(ordered, part), 4) for part in enough}
    return {"min_ms": round(ordered[0], 4), **figures, "max_ms": round(ordered[-1], 4)}


def checks(timing: Timing, limits: LatencyLimits, emulated_why: Optional[str]) -> List[GateCheck]:
    """One check per limit on latency."""
    return [_check(timing, asked, emulated_why) for asked in asked_of(limits)]


def asked_of(limits: LatencyLimits) -> List[Asked]:
    """The limits on percentiles, of all texts and by length."""
    found = [Asked(f"latency.{key}", part, limit) for key, part, limit in percentiles(limits)]
    for lengths, budget in _by_length(limits):
        asked = percentiles(budget)
        found += [Asked(by_length(lengths.most, key), part, limit, lengths) for key, part, limit in asked]
    return found


def _check(timing: Timing, asked: Asked, emulated_why: Optional[str]) -> GateCheck:
    totals_ms, lengths = timing.totals_ms(asked), ""
    if asked.lengths:
        lengths = message("gate.tokens", low=asked.lengths.above + 1, high=asked.lengths.most)
    if not totals_ms:
        missing = message("gate.no_such_texts", lengths=lengths or message("gate.a_text"))
        return GateCheck.unmeasured(limit_named(asked.gate), asked.limit_ms, missing)
    interval, verdict, why = _judge(timing, asked)
    detail = joined(joined(message("gate.input_to_answer"), lengths, by="list.comma"), why)
    verdict, detail = refuse_if_emulated(verdict, detail, emulated_why)
    return GateCheck.sampled(
        limit_named(asked.gate),
        verdict,
        interval,
        limit=asked.limit_ms,
        n=len(totals_ms),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )


def _judge(timing: Timing, asked: Asked) -> Tuple[intervals.Interval, str, str]:
    """The percentile's interval, its verdict, and the reason if it is inconclusive."""
    interval = intervals.percentile_interval(timing.totals_ms(asked), asked.fraction, bench.CONFIDENCE)
    verdict = intervals.verdict_at_most(interval, asked.limit_ms)
    if not timing.stable:
        times_ms = [sorted(window.totals_ms(asked)) for window in timing.windows]
        slowest_ms = max(intervals.percentile(ordered, asked.fraction) for ordered in times_ms if ordered)
        if verdict == intervals.PASS and slowest_ms <= asked.limit_ms:
            return interval, verdict, ""
        return (
            interval,
            intervals.INCONCLUSIVE,
            message("gate.unstable", drift=round(timing.drift, 4), n=timing.processes),
        )
    return interval, *undisturbed(verdict, timing.interference)


def undisturbed(verdict: str, beside: Interference) -> Tuple[str, str]:
    """The verdict and the reason if it is inconclusive: with interference there is no fail."""
    if verdict == intervals.PASS or (verdict == intervals.FAIL and not beside.disturbed):
        return verdict, ""
    if beside.disturbed:
        return intervals.INCONCLUSIVE, message("gate.disturbed", by=beside.describe())
    return verdict, message("gate.in_interval")


def refuse_if_emulated(verdict: str, detail: str, why: Optional[str]) -> Tuple[str, str]:
    """Make a verdict on time inconclusive on an emulator: it is slower than any device, by no fixed factor."""
    if why is None:
        return verdict, detail
    return intervals.INCONCLUSIVE, joined(detail, message("gate.emulated", why=why))
