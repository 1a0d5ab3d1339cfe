"""What the gates on time ask for, read from the manifest and checked (standard library only)."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from edgepack_runtime.gate_values import Section

P50, P95, P99 = 0.5, 0.95, 0.99
_PERCENTILES = (("p50_ms", P50), ("p95_ms", P95), ("p99_ms", P99))
_KEYS = tuple(key for key, _ in _PERCENTILES)
_SAMPLES = (130, 130, 662)  # that a verdict on each of them takes at least
_LONGEST_S = 1200.0  # of a gate at a rate: nobody waits longer for a verdict that may need five times as many
OPEN_LOOP_S = 30.0  # unless a recipe says otherwise
LEAST_OPEN_LOOP_S, MOST_OPEN_LOOP_S = 5.0, 3600.0
MOST_SUSTAINED_S = 3600.0
LEAST_SUSTAINED_S = 6.0  # thirds of two seconds
LATENCY_KEYS = (*_KEYS, "threads", "by_length", "open_loop", "sustained")


class Percentiles(NamedTuple):
    """The most that percentiles may be, in ms; None where nothing is asked."""

    p50_ms: Optional[float] = None
    p95_ms: Optional[float] = None
    p99_ms: Optional[float] = None

    def asked(self) -> List[Tuple[str, float, float]]:
        """Of each that is limited: its key, which percentile it is (0 to 1), and its limit in ms."""
        return [(key, part, limit) for (key, part), limit in zip(_PERCENTILES, self) if limit is not None]


class LengthBudget(NamedTuple):
    """Limits for texts of more than `above_tokens` and at most `max_tokens` tokens, [CLS] and [SEP] among them."""

    above_tokens: int
    max_tokens: int
    limits: Percentiles

    def holds(self, tokens: int) -> bool:
        """Whether a text of so many tokens is one of them."""
        return self.above_tokens < tokens <= self.max_tokens


class OpenLoop(NamedTuple):
    """Limits for texts that arrive at random, so many a second on average, whether the last one is answered or not.

    They arrive for `seconds` at least: what happens more seldom than that may not be seen.
    """

    rate_per_s: float
    limits: Percentiles
    seconds: float = OPEN_LOOP_S


class Sustained(NamedTuple):
    """How much slower answers may become while texts come one after the other for so many seconds."""

    seconds: float
    max_slowdown_percent: float


class LatencyLimits(NamedTuple):
    """The manifest's `latency`, less its threads."""

    percentiles: Percentiles = Percentiles()
    by_length: Tuple[LengthBudget, ...] = ()
    open_loop: Optional[OpenLoop] = None
    sustained: Optional[Sustained] = None


NO_LIMITS = LatencyLimits()


def parse(latency: Section) -> LatencyLimits:
    """The manifest's `latency`, whose keys are LATENCY_KEYS."""
    return LatencyLimits(
        percentiles=_percentiles(latency),
        by_length=_by_length(latency),
        open_loop=_open_loop(latency),
        sustained=_sustained(latency),
    )


def _percentiles(section: Section) -> Percentiles:
    """Limits of percentiles; one that may be larger than that of a higher percentile limits nothing."""
    found = Percentiles(*(section.number(key) for key in _KEYS))
    asked = found.asked()
    for place, (above, _, most) in enumerate(asked[1:]):
        key, _, limit = asked[place]
        if limit > most:
            what = f"is {limit:g}, and `{above}` is {most:g}, so it limits nothing"
            section.refuse(key, what, f"swap them, or remove `{key}`")
    return found


def _by_length(latency: Section) -> Tuple[LengthBudget, ...]:
    budgets = latency.get("by_length") or ()
    if not isinstance(budgets, (list, tuple)):
        latency.refuse("by_length", "is not a list")
        return ()
    found: List[LengthBudget] = []
    for place, budget in enumerate(budgets):
        section = Section(budget, (*latency.path, "by_length", place), ("max_tokens", *_KEYS), latency.problems)
        section.require_one_of(_KEYS)
        limits = _percentiles(section)
        most, above = section.get("max_tokens"), found[-1].max_tokens if found else 0
        if type(most) is not int:
            section.refuse("max_tokens", f"is {most!r}")
        elif most <= above:
            fix = "order the budgets from short to long texts, each length once"
            section.refuse("max_tokens", f"is {most}, and the budget before it ends at {above}", fix)
        else:
            found.append(LengthBudget(above, most, limits))
    return tuple(found)


def _open_loop(latency: Section) -> Optional[OpenLoop]:
    section = latency.below("open_loop", ("rate_per_s", "seconds", *_KEYS))
    if section is None:
        return None
    section.require_one_of(_KEYS)
    limits, rate = _percentiles(section), section.required("rate_per_s")
    needed = max((samples for samples, limit in zip(_SAMPLES, limits) if limit is not None), default=0)
    if needed / rate > _LONGEST_S:
        fix = "gate `p50_ms` and `p95_ms` of `latency` instead: texts so far apart never wait for each other"
        section.refuse("rate_per_s", f"is {rate:g}: {needed} texts take {needed / rate:.0f} s", fix)
    seconds = section.number("seconds", least=LEAST_OPEN_LOOP_S, most=MOST_OPEN_LOOP_S)
    return OpenLoop(rate, limits, OPEN_LOOP_S if seconds is None else seconds)


def _sustained(latency: Section) -> Optional[Sustained]:
    section = latency.below("sustained", ("seconds", "max_slowdown_percent"))
    if section is None:
        return None
    seconds = section.required("seconds", least=LEAST_SUSTAINED_S, most=MOST_SUSTAINED_S)
    return Sustained(seconds, section.required("max_slowdown_percent"))
