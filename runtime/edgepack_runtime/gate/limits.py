"""Limits of the gates: parses and validates the manifest's `gates`. Recipes are validated by the same code."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.stats.checks import DELIVER, POLICIES
from edgepack_runtime.stats.metrics import METRICS

KeyPath = Tuple[Union[str, int], ...]


class Problem(NamedTuple):
    """An invalid value of the gates: its key, the reason, and the fix in a recipe."""

    path: KeyPath
    reason: str
    fix: str


class Section:
    """One section of the gates. Reading an invalid value returns None and adds to `problems`."""

    def __init__(self, values: Any, path: KeyPath, known: Sequence[str], problems: List[Problem]) -> None:
        self.path, self.problems = path, problems
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        self._readable = True
        if values is not None and not isinstance(values, Mapping):
            self.refuse(None, "is not an object")
            self._readable = False  # no further problems for this section
        for key in self._values:
            if key not in known:
                self.refuse(key, "is not a key that this version knows")

    def get(self, key: str) -> Any:
        """The value of `key`, not validated; None if it is missing."""
        return self._values.get(key)

    def below(self, key: str, known: Sequence[str]) -> Optional[Section]:
        """The subsection `key`; None if it is missing."""
        value = self.get(key)
        return None if value is None else Section(value, (*self.path, key), known, self.problems)

    def number(
        self, key: str, *, below: float = math.inf, least: float = 0.0, most: float = math.inf
    ) -> Optional[float]:
        """A number above 0, below `below`, and from `least` to `most`; None if it is missing or invalid."""
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not (0 < value < below and least <= value <= most):
            self.refuse(key, f"is {value!r}")
            return None
        return float(value)

    def required(self, key: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """As `number` for a mandatory key; infinity if it is missing or invalid."""
        value = self.number(key, least=least, most=most)
        if self.get(key) is None:
            self.refuse(key, "is missing")
        return math.inf if value is None else value

    def require_one_of(self, keys: Sequence[str]) -> None:
        """Add a problem unless one of `keys` sets a limit."""
        if all(self.get(key) is None for key in keys):
            names = ", ".join(f"`{key}`" for key in keys)
            self.refuse(None, "sets no limit, so nothing would be gated", f"set one of {names}, or remove it")

    def refuse(self, key: Optional[str], what: str, fix: str = "") -> None:
        """Add a problem with `key`, or with the section itself; the message is its name followed by `what`."""
        if not self._readable:
            return
        path = self.path if key is None else (*self.path, key)
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        self.problems.append(Problem(path, f"`gates.{dotted}` {what}", fix))


ACCURACY_LIMITS = ("min", "max_drop_points", "max_regression_points", "per_class")
ACCURACY_KEYS = (
    "metric", "min", "max_drop_points", "baseline", "max_regression_points", "per_class", "confidence",
    "above_majority",
)  # fmt: skip
GOLDEN_KEYS = ("rows", "carry", "sha256")
# For two-sided intervals; above the maximum, the bootstrap of F1 needs too many resamples.
ABOVE_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
FIGURES = ("recall", "precision", "f1")  # of a class
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Floors(NamedTuple):
    """Minimum of recall, precision or F1 per class, 0 to 1: a default, and values for named classes."""

    every: Optional[float]
    named: Mapping[str, float]

    def of(self, label: str) -> Optional[float]:
        """The floor of one class; None without one."""
        return self.named.get(label, self.every)


def baseline(accuracy: Section) -> Optional[str]:
    """Name and version of the earlier release, from the manifest's `name`, `version`, `target` and digest of it."""
    facts, points = accuracy.get("baseline"), accuracy.get("max_regression_points")
    if facts is None:
        if points is not None:
            accuracy.refuse("max_regression_points", "needs an earlier release", "set `baseline` to its bundle")
        return None
    if points is None:
        fix = "set `max_regression_points`: how much worse than that release the new one may be"
        accuracy.refuse("baseline", "limits nothing by itself", fix)
    name, version = (facts.get("name"), facts.get("version")) if isinstance(facts, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        accuracy.refuse("baseline", f"is {facts!r}")
        return None
    return f"{name} {version}"


def _flag(section: Section, key: str) -> bool:
    """Whether `key` is true; false if it is missing or invalid."""
    value = section.get(key)
    if type(value) not in (type(None), bool):
        section.refuse(key, f"is {value!r}")
    return value is True


def parse_confidence(accuracy: Section) -> Optional[float]:
    """Confidence of the accuracy intervals, above 0.5 and at most 0.999; None for the default."""
    value = accuracy.number("confidence", most=MOST_CONFIDENCE)
    if value is not None and value <= ABOVE_CONFIDENCE:
        accuracy.refuse("confidence", f"is {value!r}")
    return value


def rows_at_home(golden: Section) -> Optional[str]:
    """SHA-256 of the labelled rows if they are kept out of the bundle (`carry` is false), else None."""
    carry, digest = golden.get("carry"), golden.get("sha256")
    if type(carry) not in (type(None), bool) or (carry is not False) is not (digest is None):
        golden.refuse("carry", f"is {carry!r}, and `sha256` {digest!r}")
    elif digest is not None and not (isinstance(digest, str) and _SHA256.match(digest)):
        golden.refuse("sha256", f"is {digest!r}")
    else:
        return digest
    return None


def floors(accuracy: Section) -> Dict[str, Floors]:
    """Parse `accuracy.per_class`: `recall` is for all classes, `recall_of` overrides it for named ones; likewise
    precision and F1.

    Returns:
        The floors by figure, for the `FIGURES` that have any.
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
MOST_SUSTAINED_S = 3600.0
LEAST_SUSTAINED_S = 6.0  # three thirds of two seconds
LATENCY_KEYS = (*_KEYS, "threads", "by_length", "sustained")


class Percentiles(NamedTuple):
    """Maximum of latency percentiles in ms; None for no limit."""

    p50_ms: Optional[float] = None
    p95_ms: Optional[float] = None
    p99_ms: Optional[float] = None

    def asked(self) -> List[Tuple[str, float, float]]:
        """(key, percentile from 0 to 1, limit in ms) for each limited percentile."""
        return [(key, part, limit) for (key, part), limit in zip(_PERCENTILES, self) if limit is not None]


class LengthBudget(NamedTuple):
    """Limits for texts of more than `above_tokens` and at most `max_tokens` tokens, [CLS] and [SEP] among them."""

    above_tokens: int
    max_tokens: int
    limits: Percentiles

    def holds(self, tokens: int) -> bool:
        """Whether a text of so many tokens is in the range."""
        return self.above_tokens < tokens <= self.max_tokens


class Sustained(NamedTuple):
    """Maximum slowdown during a run of so many seconds without pauses."""

    seconds: float
    max_slowdown_percent: float


class LatencyLimits(NamedTuple):
    """The manifest's `latency` without its threads."""

    percentiles: Percentiles = Percentiles()
    by_length: Tuple[LengthBudget, ...] = ()
    sustained: Optional[Sustained] = None


NO_LIMITS = LatencyLimits()


def parse_latency(latency: Section) -> LatencyLimits:
    """Parse the manifest's `latency`, which has the keys LATENCY_KEYS."""
    return LatencyLimits(
        percentiles=_percentiles(latency),
        by_length=_by_length(latency),
        sustained=_sustained(latency),
    )


def _percentiles(section: Section) -> Percentiles:
    """Parse limits of percentiles. A limit above the limit of a higher percentile is refused: it has no effect."""
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


def _sustained(latency: Section) -> Optional[Sustained]:
    section = latency.below("sustained", ("seconds", "max_slowdown_percent"))
    if section is None:
        return None
    seconds = section.required("seconds", least=LEAST_SUSTAINED_S, most=MOST_SUSTAINED_S)
    return Sustained(seconds, section.required("max_slowdown_percent"))


# Gates that this runtime can measure. Others are refused: a skipped gate would look like a passed one.
_KNOWN: Mapping[str, Tuple[str, ...]] = {
    "accuracy": ACCURACY_KEYS,
    "latency": LATENCY_KEYS,
    "memory": ("peak_rss_mib",),
    "size": ("model_mib", "bundle_mib"),
    "cold_start": ("ms",),
    "golden": GOLDEN_KEYS,
}
POLICY = "inconclusive"  # the one key of the gates that is no section


@dataclasses.dataclass(frozen=True)
class Limits:
    """The manifest's gates; None for no limit.

    `accuracy_min` and `max_drop_points` apply to `metric`, one of `metrics.METRICS`; None is the default of the
    model's task (`gate.accuracy.metric_for`). `per_class` maps `FIGURES` to floors. `max_regression_points` is
    against the earlier release `baseline`. `above_majority`: the model must be better than the most frequent answer;
    every build sets it, a recipe cannot. `rows_sha256` is set if the labelled rows are kept out of the bundle.
    `inconclusive` is what happens to a release in doubt, one of `checks.POLICIES`.
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
    above_majority: bool = False
    inconclusive: str = DELIVER


def parse(gates: Mapping[str, Any]) -> Limits:
    """Parse the manifest's `gates`.

    Raises:
        BundleInvalidError: a key is unknown to this runtime, or a value is invalid.
    """
    limits, problems = read(gates)
    if problems:
        raise BundleInvalidError(
            "this runtime cannot measure the gates of the manifest",
            why="; ".join(problem.reason for problem in problems[:3]),
            fix="build the bundle again",
        )
    return limits


def read(gates: Mapping[str, Any]) -> Tuple[Limits, List[Problem]]:
    """The limits of `gates` and their problems; the limits are valid only without problems."""
    problems: List[Problem] = []
    whole = Section(gates, (), (*_KNOWN, POLICY), problems)
    policy = DELIVER if whole.get(POLICY) is None else whole.get(POLICY)
    if policy not in POLICIES:
        whole.refuse(POLICY, f"is {policy!r}")
    sections = {name: Section(gates.get(name), (name,), keys, problems) for name, keys in _KNOWN.items()}
    accuracy, latency, size = sections["accuracy"], sections["latency"], sections["size"]
    above_majority = _flag(accuracy, "above_majority")
    if gates.get("accuracy") is not None and not above_majority:
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
        above_majority=above_majority,
        inconclusive=policy,
    )
    return limits, problems
