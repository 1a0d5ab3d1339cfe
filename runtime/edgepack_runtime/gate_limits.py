"""What the gates ask for (the manifest's `gates`, checked) and what was found (a row of the receipt).

Standard library only.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.metrics import METRICS
from edgepack_runtime.stats import FAIL, PASS, Interval

# Every gate that this runtime can measure. One that it cannot is refused: skipping it would look like passing it.
_KNOWN: Mapping[str, Tuple[str, ...]] = {
    "accuracy": (
        "metric",
        "min",
        "max_drop_points",
        "baseline",
        "max_regression_points",
        "per_class",
        "confidence",
    ),
    "latency": ("p50_ms", "p95_ms", "threads"),
    "memory": ("peak_rss_mib",),
    "size": ("model_mib", "bundle_mib"),
    "cold_start": ("ms",),
}

FIGURES = ("recall", "precision", "f1")  # of a class
PER_CLASS = "accuracy.per_class."  # with one of them behind it: the name of its check


class Floors(NamedTuple):
    """What a figure of a class must reach, 0 to 1: one number for every class, and those of named ones instead."""

    every: Optional[float]
    named: Mapping[str, float]

    def of(self, label: str) -> Optional[float]:
        """That of one class; None where nothing is asked of it."""
        return self.named.get(label, self.every)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The manifest's gates; None where nothing is asked for. `confidence` and `threads` hold for what is measured.

    `accuracy_min` and `max_drop_points` are about `metric`, one of `metrics.METRICS`; None is what such models are
    compared by (`gate_accuracy.metric_for`). `per_class` has those of `FIGURES` that floors are set for.
    `baseline` names the earlier release that `max_regression_points` is against.
    """

    accuracy_min: Optional[float] = None
    max_drop_points: Optional[float] = None
    confidence: float = 0.95
    p50_ms: Optional[float] = None
    p95_ms: Optional[float] = None
    threads: int = 1
    peak_rss_mib: Optional[float] = None
    model_mib: Optional[float] = None
    bundle_mib: Optional[float] = None
    cold_start_ms: Optional[float] = None
    metric: Optional[str] = None
    per_class: Mapping[str, Floors] = dataclasses.field(default_factory=dict)
    baseline: Optional[str] = None
    max_regression_points: Optional[float] = None


class Check(NamedTuple):
    """One row of the receipt. `low`, `high` and `confidence` are null for a figure that was not sampled (a size).

    `high` alone is null where the samples are too few to bound the figure from above.
    """

    gate: str
    verdict: str
    value: Optional[float]
    low: Optional[float]
    high: Optional[float]
    limit: float
    unit: str
    n: int
    confidence: Optional[float]
    detail: str = ""

    def as_json(self) -> Dict[str, Any]:
        """A plain JSON object."""
        return dict(self._asdict())


def sampled(
    gate: str, verdict: str, interval: Interval, *, limit: float, unit: str, n: int, confidence: float, detail: str
) -> Check:
    """A row for a figure estimated from `n` samples. `detail` is put behind the reason where it does not pass."""
    value, low, high = (round(number, 6) if math.isfinite(number) else None for number in interval)
    if verdict != PASS:
        detail = f"{interval.low:.4g} to {interval.high:.4g} {unit}, the limit is {limit:g}; {detail}"
    return Check(gate, verdict, value, low, high, limit, unit, n, confidence, detail)


def at_least(gate: str) -> bool:
    """Whether the limit of a check of this name is the least that passes; else it is the most."""
    return gate == "accuracy.min" or gate.startswith(PER_CLASS)


def would_decide(n: Optional[int], of_what: str) -> str:
    """How much more it takes, in words."""
    if n is None:
        return f"no number of {of_what} would decide: the figure is at the limit"
    return f"about {n} {of_what} would decide"


def counted(gate: str, value: float, *, limit: float, unit: str, detail: str) -> Check:
    """A row for a figure that was read once and may be at most `limit`."""
    verdict = PASS
    if value > limit:
        verdict, detail = FAIL, f"{value:.4g} {unit}, the limit is {limit:g}; {detail}"
    return Check(gate, verdict, round(value, 6), None, None, limit, unit, 1, None, detail)


def parse(gates: Mapping[str, Any]) -> Limits:
    """Check the manifest's `gates`.

    Raises:
        BundleInvalidError: it asks for something that this runtime does not know, or for nonsense.
    """
    sections: Dict[str, Mapping[str, Any]] = {}
    for name, section in gates.items():
        if name not in _KNOWN:
            raise _invalid(f"it has a gate named {name!r}")
        if section is not None and not isinstance(section, Mapping):
            raise _invalid(f"{name} is not an object")
        sections[name] = section or {}
        for key in sections[name]:
            if key not in _KNOWN[name]:
                raise _invalid(f"{name} has a limit named {key!r}")
    accuracy, latency = sections.get("accuracy", {}), sections.get("latency", {})
    metric = accuracy.get("metric")
    if "metric" in accuracy and metric not in METRICS:
        raise _invalid(f"accuracy.metric is {metric!r}")
    threads = latency.get("threads", 1)
    if type(threads) is not int or not 1 <= threads <= 256:
        raise _invalid(f"latency.threads is {threads!r}")
    confidence = _number(accuracy, "accuracy", "confidence", below=1.0)
    return Limits(
        accuracy_min=_number(accuracy, "accuracy", "min", below=1.0),
        max_drop_points=_number(accuracy, "accuracy", "max_drop_points"),
        confidence=Limits.confidence if confidence is None else confidence,
        p50_ms=_number(latency, "latency", "p50_ms"),
        p95_ms=_number(latency, "latency", "p95_ms"),
        threads=threads,
        peak_rss_mib=_number(sections.get("memory", {}), "memory", "peak_rss_mib"),
        model_mib=_number(sections.get("size", {}), "size", "model_mib"),
        bundle_mib=_number(sections.get("size", {}), "size", "bundle_mib"),
        cold_start_ms=_number(sections.get("cold_start", {}), "cold_start", "ms"),
        metric=metric,
        per_class=_floors(accuracy.get("per_class")),
        baseline=_baseline(accuracy.get("baseline")),
        max_regression_points=_number(accuracy, "accuracy", "max_regression_points"),
    )


def _baseline(facts: Any) -> Optional[str]:
    """Name and version of the earlier release, of which the manifest says `name`, `version`, `target` and a digest."""
    if facts is None:
        return None
    name, version = (facts.get("name"), facts.get("version")) if isinstance(facts, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        raise _invalid(f"accuracy.baseline is {facts!r}")
    return f"{name} {version}"


def _floors(section: Any) -> Dict[str, Floors]:
    """`accuracy.per_class`: `recall` holds for every class, `recall_of` for those that it names; so for the others."""
    name = "accuracy.per_class"
    if section is None:
        return {}
    if not isinstance(section, Mapping) or set(section) - {key for one in FIGURES for key in (one, one + "_of")}:
        raise _invalid(f"{name} is {section!r}")
    found = {}
    for figure in FIGURES:
        named = section.get(figure + "_of") or {}
        if not isinstance(named, Mapping):
            raise _invalid(f"{name}.{figure}_of is {named!r}")
        limits = {label: _number(named, f"{name}.{figure}_of", label, below=1.0) for label in named}
        floors = Floors(
            _number(section, name, figure, below=1.0), {label: one for label, one in limits.items() if one is not None}
        )
        if floors.every is not None or floors.named:
            found[figure] = floors
    return found


def _number(section: Mapping[str, Any], name: str, key: str, below: float = math.inf) -> Optional[float]:
    value = section.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < below:
        raise _invalid(f"{name}.{key} is {value!r}")
    return float(value)


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(
        "the manifest's gates are not ones this runtime can measure", why=why, fix="build the bundle again"
    )
