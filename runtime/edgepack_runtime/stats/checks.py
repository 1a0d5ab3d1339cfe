"""A check: a figure with its interval, limit and verdict, as a row of the receipt and as text."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, NamedTuple, Optional

from edgepack_runtime.stats.intervals import FAIL, PASS, Interval

PER_CLASS = "accuracy.per_class."  # with one of them behind it: the name of its check
_SIGNS = {"percent": " %", "fraction": " %"}  # how units are written for people, where they are not words of their own
_DECIMALS = 4  # of figures for people
_TIMES = {"fraction": 100.0}  # and what figures in them are multiplied by for that
NO_GATES = "the recipe sets no gates"  # why nothing was judged, in receipts


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
