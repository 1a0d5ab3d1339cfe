"""What the gates on time ask for, read from the manifest and checked (standard library only)."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from edgepack_runtime.gate_values import check_keys, invalid, number, required

P50, P95, P99 = 0.5, 0.95, 0.99
_PERCENTILES = (("p50_ms", P50), ("p95_ms", P95), ("p99_ms", P99))
_KEYS = tuple(key for key, _ in _PERCENTILES)
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


def parse(section: Mapping[str, Any]) -> LatencyLimits:
    """Check the manifest's `latency`, whose keys are LATENCY_KEYS.

    Raises:
        BundleInvalidError: it asks for something that this runtime does not know, or for nonsense.
    """
    return LatencyLimits(
        percentiles=_percentiles(section, "latency"),
        by_length=_by_length(section.get("by_length") or ()),
        open_loop=_open_loop(section),
        sustained=_sustained(section),
    )


def _percentiles(section: Mapping[str, Any], name: str) -> Percentiles:
    return Percentiles(*(number(section, name, key) for key in _KEYS))


def _by_length(buckets: Any) -> Tuple[LengthBudget, ...]:
    if not isinstance(buckets, (list, tuple)):
        raise invalid("latency.by_length is not a list")
    found: List[LengthBudget] = []
    for place, bucket in enumerate(buckets):
        name = f"latency.by_length[{place}]"
        check_keys(bucket, name, ("max_tokens", *_KEYS))
        most, above = bucket.get("max_tokens"), found[-1].max_tokens if found else 0
        if type(most) is not int or most <= above:
            raise invalid(f"{name}.max_tokens is {most!r}")
        limits = _percentiles(bucket, name)
        if not limits.asked():
            raise invalid(f"{name} limits nothing")
        found.append(LengthBudget(above, most, limits))
    return tuple(found)


def _open_loop(section: Mapping[str, Any]) -> Optional[OpenLoop]:
    below, name = section.get("open_loop"), "latency.open_loop"
    if below is None:
        return None
    check_keys(below, name, ("rate_per_s", "seconds", *_KEYS))
    limits = _percentiles(below, name)
    if not limits.asked():
        raise invalid(f"{name} limits nothing")
    seconds = number(below, name, "seconds")
    if seconds is None:
        seconds = OPEN_LOOP_S
    if not LEAST_OPEN_LOOP_S <= seconds <= MOST_OPEN_LOOP_S:
        raise invalid(f"{name}.seconds is {seconds:g}")
    return OpenLoop(required(below, name, "rate_per_s"), limits, seconds)


def _sustained(section: Mapping[str, Any]) -> Optional[Sustained]:
    below, name = section.get("sustained"), "latency.sustained"
    if below is None:
        return None
    check_keys(below, name, ("seconds", "max_slowdown_percent"))
    found = Sustained(required(below, name, "seconds"), required(below, name, "max_slowdown_percent"))
    if not LEAST_SUSTAINED_S <= found.seconds <= MOST_SUSTAINED_S:
        raise invalid(f"{name}.seconds is {found.seconds:g}")
    return found
