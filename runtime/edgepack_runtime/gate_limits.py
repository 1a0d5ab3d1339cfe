"""What the gates ask for (the manifest's `gates`, checked) and what was found (a row of the receipt).

Standard library only.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from edgepack_runtime import accuracy_limits, latency_limits
from edgepack_runtime.accuracy_limits import PER_CLASS, Floors
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate_values import Problem, Section
from edgepack_runtime.latency_limits import LatencyLimits
from edgepack_runtime.metrics import METRICS
from edgepack_runtime.stats import FAIL, PASS, Interval

_SIGNS = {"percent": " %", "fraction": " %"}  # how units are written for people, where they are not words of their own
_DECIMALS = 4  # of figures for people
_TIMES = {"fraction": 100.0}  # and what figures in them are multiplied by for that
NO_GATES = "the recipe sets no gates"  # why nothing was judged, in receipts
# Every gate that this runtime can measure. One that it cannot is refused: skipping it would look like passing it.
_KNOWN: Mapping[str, Tuple[str, ...]] = {
    "accuracy": accuracy_limits.ACCURACY_KEYS,
    "latency": latency_limits.LATENCY_KEYS,
    "memory": ("peak_rss_mib",),
    "size": ("model_mib", "bundle_mib"),
    "cold_start": ("ms",),
    "golden": accuracy_limits.GOLDEN_KEYS,
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
    latency: LatencyLimits = latency_limits.NO_LIMITS
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


class Check(NamedTuple):
    """One row of the receipt. `low`, `high` and `confidence` are null for a figure that was not sampled (a size).

    `high` alone is null where the samples are too few to bound the figure from above. `detail` says what was measured
    and why it did not pass, and none of the figures that stand beside it.
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
    """A row for a figure estimated from `n` samples."""
    value, low, high = (round(number, 6) if math.isfinite(number) else None for number in interval)
    return Check(gate, verdict, value, low, high, limit, unit, n, confidence, detail)


def figure(value: Optional[float], unit: str = "") -> str:
    """A figure of a row for people, where its unit stands elsewhere: `12.5`; `94.12` of the fraction 0.9412."""
    if value is None:
        return "-"
    value = round(value * _TIMES.get(unit, 1.0), _DECIMALS) + 0.0  # neither 1e-06 nor -0
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"  # no 1.234e+04


def shown(value: Optional[float], unit: str = "") -> str:
    """A figure of a row with its unit: `12.5 ms`, `40 %`, and `94.12 %` of a fraction; `-` where there is none."""
    return figure(value, unit) + ("" if value is None else _SIGNS.get(unit, f" {unit}" if unit else ""))


def interval(row: Mapping[str, Any], *, with_unit: bool = True) -> str:
    """The interval of a row (a JSON object) for people: `0.2 to 9.8 ms`, `12 ms or more`, `-` where there is none."""
    low, high, unit = row.get("low"), row.get("high"), str(row.get("unit") or "")
    told = shown if with_unit else figure
    if low is None or high is None:
        end = low if high is None else high
        return "-" if end is None else "{} or {}".format(told(end, unit), "more" if high is None else "less")
    return f"{figure(low, unit)} to {told(high, unit)}"


def missed(row: Mapping[str, Any]) -> str:
    """A row that did not pass in a line that stands alone: figures, limit and why. A receipt may lack parts of it."""
    unit = str(row.get("unit") or "")
    measured = interval(row)
    if measured == "-":
        measured = shown(row.get("value"), unit)
    sign = ">=" if at_least(str(row.get("gate"))) else "<="
    due = f"{measured} where {sign} {shown(row.get('limit'), unit)} is due; "
    if measured == "-" or row.get("limit") is None:
        due = ""
    return "{}: {}{}".format(row.get("gate"), due, row.get("detail") or row.get("verdict"))


def at_least(gate: str) -> bool:
    """Whether the limit of a check of this name is the least that passes; else it is the most."""
    return gate == "accuracy.min" or gate.startswith(PER_CLASS)


def would_decide(n: Optional[int], of_what: str) -> str:
    """How much more it takes, in words."""
    if n is None:
        return f"not even 10 million {of_what} would decide: the figure is at the limit, or next to it"
    return f"about {n} {of_what} would decide"


def read_once(gate: str, value: float, *, limit: float, unit: str, detail: str) -> Check:
    """A row for a figure that was read once and may be at most `limit`."""
    verdict = FAIL if value > limit else PASS
    return Check(gate, verdict, round(value, 6), None, None, limit, unit, 1, None, detail)


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
        accuracy.require_one_of(accuracy_limits.ACCURACY_LIMITS)
    if gates.get("size") is not None:
        size.require_one_of(_KNOWN["size"])
    metric = accuracy.get("metric")
    if metric is not None and metric not in METRICS:
        accuracy.refuse("metric", f"is {metric!r}")
    threads = 1 if latency.get("threads") is None else latency.get("threads")
    if type(threads) is not int or not 1 <= threads <= 256:
        latency.refuse("threads", f"is {threads!r}")
    confidence = accuracy_limits.confidence(accuracy)
    limits = Limits(
        accuracy_min=accuracy.number("min", below=1.0),
        max_drop_points=accuracy.number("max_drop_points"),
        confidence=Limits.confidence if confidence is None else confidence,
        latency=latency_limits.parse(latency),
        threads=threads,
        peak_rss_mib=sections["memory"].number("peak_rss_mib"),
        model_mib=size.number("model_mib"),
        bundle_mib=size.number("bundle_mib"),
        cold_start_ms=sections["cold_start"].number("ms"),
        metric=metric,
        baseline=accuracy_limits.baseline(accuracy),
        max_regression_points=accuracy.number("max_regression_points"),
        per_class=accuracy_limits.floors(accuracy),
        rows_sha256=accuracy_limits.rows_at_home(sections["golden"]),
    )
    return limits, problems
