"""The limits of the gates: the manifest's `gates`, read and checked. A recipe is checked by the same code."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.stats.metrics import METRICS

KeyPath = Tuple[Union[str, int], ...]


class Problem(NamedTuple):
    """What is wrong with the gates, at which key, and what to do about it in a recipe."""

    path: KeyPath
    reason: str
    fix: str


class Section:
    """One section of the gates. A value that is wrong reads as None, and its problem is added to `problems`."""

    def __init__(self, values: Any, path: KeyPath, known: Sequence[str], problems: List[Problem]) -> None:
        self.path, self.problems = path, problems
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        self._readable = True
        if values is not None and not isinstance(values, Mapping):
            self.refuse(None, "is not an object")
            self._readable = False  # nothing more is said of it
        for key in self._values:
            if key not in known:
                self.refuse(key, "is not a key that this version knows")

    def get(self, key: str) -> Any:
        """The value of `key`, unchecked; None where there is none."""
        return self._values.get(key)

    def below(self, key: str, known: Sequence[str]) -> Optional[Section]:
        """The section `key`; None where there is none."""
        value = self.get(key)
        return None if value is None else Section(value, (*self.path, key), known, self.problems)

    def number(
        self, key: str, *, below: float = math.inf, least: float = 0.0, most: float = math.inf
    ) -> Optional[float]:
        """A number above 0, below `below`, and from `least` to `most`; None where there is none."""
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not (0 < value < below and least <= value <= most):
            self.refuse(key, f"is {value!r}")
            return None
        return float(value)

    def required(self, key: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """As `number`, where one has to be there."""
        value = self.number(key, least=least, most=most)
        if self.get(key) is None:
            self.refuse(key, "is missing")
        return math.inf if value is None else value

    def require_one_of(self, keys: Sequence[str]) -> None:
        """That one of `keys` sets a limit."""
        if all(self.get(key) is None for key in keys):
            names = ", ".join(f"`{key}`" for key in keys)
            self.refuse(None, "sets no limit, so nothing would be gated", f"set one of {names}, or remove it")

    def refuse(self, key: Optional[str], what: str, fix: str = "") -> None:
        """Add a problem of `key`, or of the section itself: `what` follows its name."""
        if not self._readable:
            return
        path = self.path if key is None else (*self.path, key)
        self.problems.append(Problem(path, f"`gates.{_dotted(path)}` {what}", fix))


def _dotted(path: KeyPath) -> str:
    """`latency.by_length[0].p50_ms`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


ACCURACY_LIMITS = ("min", "max_drop_points", "max_regression_points", "per_class")
ACCURACY_KEYS = ("metric", "min", "max_drop_points", "baseline", "max_regression_points", "per_class", "confidence")
GOLDEN_KEYS = ("rows", "carry", "sha256")
# Of two-sided intervals. Up to one half says nothing; beyond the other, F1 takes more resamples than there is time for.
ABOVE_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
FIGURES = ("recall", "precision", "f1")  # of a class
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Floors(NamedTuple):
    """What a figure of a class must reach, 0 to 1: one number for every class, and those of named ones instead."""

    every: Optional[float]
    named: Mapping[str, float]

    def of(self, label: str) -> Optional[float]:
        """That of one class; None where nothing is asked of it."""
        return self.named.get(label, self.every)


def baseline(accuracy: Section) -> Optional[str]:
    """Name and version of the earlier release, of which the manifest holds `name`, `version`, `target` and a digest."""
    facts, points = accuracy.get("baseline"), accuracy.get("max_regression_points")
    if facts is None:
        if points is not None:
            accuracy.refuse("max_regression_points", "is against no release", "set `baseline` to the bundle of one")
        return None
    if points is None:
        fix = "set `max_regression_points`: how much worse than that release the new one may be"
        accuracy.refuse("baseline", "limits nothing by itself", fix)
    name, version = (facts.get("name"), facts.get("version")) if isinstance(facts, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        accuracy.refuse("baseline", f"is {facts!r}")
        return None
    return f"{name} {version}"


def parse_confidence(accuracy: Section) -> Optional[float]:
    """The confidence of every interval on accuracy, above 0.5 and at most 0.999; None for the default."""
    value = accuracy.number("confidence", most=MOST_CONFIDENCE)
    if value is not None and value <= ABOVE_CONFIDENCE:
        accuracy.refuse("confidence", f"is {value!r}")
    return value


def rows_at_home(golden: Section) -> Optional[str]:
    """The sha256 of the labelled rows where they do not travel with the bundle (`carry` is false), else None."""
    carry, digest = golden.get("carry"), golden.get("sha256")
    if type(carry) not in (type(None), bool) or (carry is not False) is not (digest is None):
        golden.refuse("carry", f"is {carry!r}, and `sha256` {digest!r}")
    elif digest is not None and not (isinstance(digest, str) and _SHA256.match(digest)):
        golden.refuse("sha256", f"is {digest!r}")
    else:
        return digest
    return None


def floors(accuracy: Section) -> Dict[str, Floors]:
    """`accuracy.per_class`: `recall` holds for every class, `recall_of` for those that it names; so for the others.

    Returns:
        By figure, of `FIGURES` those that floors are set for.
    """
    section = accuracy.below("per_class", [key for figure in FIGURES for key in (figure, figure + "_of")])
    if section is None:
        return {}
    found = {}
    for figure in FIGURES:
        labels = section.get(figure + "_of")
        labels = list(labels) if isinstance(labels, Mapping) else []
        named = section.below(figure + "_of", labels)
        asked = {} if named is None else {label: named.number(label, below=1.0) for label in labels}
        limits = {label: limit for label, limit in asked.items() if limit is not None}
        one = Floors(section.number(figure, below=1.0), limits)
        if one.every is not None or one.named:
            found[figure] = one
    if not any(section.get(key) for figure in FIGURES for key in (figure, figure + "_of")):
        section.refuse(None, "sets no floor", "set `recall`, `precision` or `f1`, or remove the section")
    return found


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


def parse_latency(latency: Section) -> LatencyLimits:
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


# Every gate that this runtime can measure. One that it cannot is refused: skipping it would look like passing it.
_KNOWN: Mapping[str, Tuple[str, ...]] = {
    "accuracy": ACCURACY_KEYS,
    "latency": LATENCY_KEYS,
    "memory": ("peak_rss_mib",),
    "size": ("model_mib", "bundle_mib"),
    "cold_start": ("ms",),
    "golden": GOLDEN_KEYS,
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """The manifest's gates; None where nothing is asked for. `confidence` and `threads` hold for what is measured.

    `accuracy_min` and `max_drop_points` are about `metric`, one of `metrics.METRICS`; None is what such models are
    compared by (`gate_accuracy.metric_for`). `per_class` has those of `FIGURES` that floors are set for.
    `baseline` names the earlier release that `max_regression_points` is against. `rows_sha256` is that of the file of
    labelled rows, where they do not travel.
    """

    accuracy_min: Optional[float] = None
    max_drop_points: Optional[float] = None
    confidence: float = 0.95
    latency: LatencyLimits = NO_LIMITS
    threads: int = 1
    peak_rss_mib: Optional[float] = None
    model_mib: Optional[float] = None
    bundle_mib: Optional[float] = None
    cold_start_ms: Optional[float] = None
    metric: Optional[str] = None
    per_class: Mapping[str, Floors] = dataclasses.field(default_factory=dict)
    baseline: Optional[str] = None
    max_regression_points: Optional[float] = None
    rows_sha256: Optional[str] = None


def parse(gates: Mapping[str, Any]) -> Limits:
    """Check the manifest's `gates`.

    Raises:
        BundleInvalidError: it asks for something that this runtime does not know, or for nonsense.
    """
    limits, problems = read(gates)
    if problems:
        raise BundleInvalidError(
            "the manifest's gates are not ones this runtime can measure",
            why="; ".join(problem.reason for problem in problems[:3]),
            fix="build the bundle again",
        )
    return limits


def read(gates: Mapping[str, Any]) -> Tuple[Limits, List[Problem]]:
    """The limits of `gates`, and everything that is wrong with them; the limits hold only where nothing is."""
    problems: List[Problem] = []
    Section(gates, (), tuple(_KNOWN), problems)
    sections = {name: Section(gates.get(name), (name,), keys, problems) for name, keys in _KNOWN.items()}
    accuracy, latency, size = sections["accuracy"], sections["latency"], sections["size"]
    if gates.get("accuracy") is not None:
        accuracy.require_one_of(ACCURACY_LIMITS)
    if gates.get("size") is not None:
        size.require_one_of(_KNOWN["size"])
    metric = accuracy.get("metric")
    if metric is not None and metric not in METRICS:
        accuracy.refuse("metric", f"is {metric!r}")
    threads = 1 if latency.get("threads") is None else latency.get("threads")
    if type(threads) is not int or not 1 <= threads <= 256:
        latency.refuse("threads", f"is {threads!r}")
    confidence = parse_confidence(accuracy)
    limits = Limits(
        accuracy_min=accuracy.number("min", below=1.0),
        max_drop_points=accuracy.number("max_drop_points"),
        confidence=Limits.confidence if confidence is None else confidence,
        latency=parse_latency(latency),
        threads=threads,
        peak_rss_mib=sections["memory"].number("peak_rss_mib"),
        model_mib=size.number("model_mib"),
        bundle_mib=size.number("bundle_mib"),
        cold_start_ms=sections["cold_start"].number("ms"),
        metric=metric,
        baseline=baseline(accuracy),
        max_regression_points=accuracy.number("max_regression_points"),
        per_class=floors(accuracy),
        rows_sha256=rows_at_home(sections["golden"]),
    )
    return limits, problems
