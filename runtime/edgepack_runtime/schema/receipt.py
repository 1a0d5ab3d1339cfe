"""Checks of a gate: a measured value with its interval, limit and verdict, as a receipt row and as text."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from edgepack_runtime.schema.gates import ABOVE_MAJORITY, DELIVER, REFUSE, is_minimum
from edgepack_runtime.stats.intervals import FAIL, INCONCLUSIVE, PASS, Interval

ACCURACY_NOT_GATED = "accuracy is not gated: the recipe sets no limit for it"
NO_GATES = "the recipe sets no gates"  # reason in receipts of releases without limits
UNGATED = "no gates"  # shown instead of a verdict if the recipe sets no gates
_SIGNS = {"percent": " %", "fraction": " %"}  # other units are printed by their name
_DECIMALS = 4


class GateCheck(NamedTuple):
    """One row of the receipt. `low`, `high` and `confidence` are null for a value read once (a size).

    `high` alone is null if the samples are too few to bound the value from above. `detail` holds what was measured
    and why it did not pass, without repeating the other fields.
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
) -> GateCheck:
    """Check of a value that is estimated from `n` samples."""
    value, low, high = (round(number, 6) if math.isfinite(number) else None for number in interval)
    return GateCheck(gate, verdict, value, low, high, limit, unit, n, confidence, detail)


def verdict(receipt: Mapping[str, Any]) -> str:
    """The verdict of a gate's receipt; `no gates` if its recipe sets none."""
    word = str(receipt["verdict"])
    left_out = [one["gate"] for one in receipt.get("unmeasured", ())]
    return UNGATED if word == PASS and not receipt["checks"] and left_out in ([], ["gates"]) else word


def figure(value: Optional[float], unit: str = "") -> str:
    """Format a value without its unit: `12.5`; `94.12` for the fraction 0.9412; `-` for None."""
    if value is None:
        return "-"
    value = round(value * (100.0 if unit == "fraction" else 1.0), _DECIMALS) + 0.0  # neither 1e-06 nor -0
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"  # no 1.234e+04


def shown(value: Optional[float], unit: str = "") -> str:
    """Format a value with its unit: `12.5 ms`, `40 %`, `94.12 %` for the fraction 0.9412; `-` for None."""
    return figure(value, unit) + ("" if value is None else _SIGNS.get(unit, f" {unit}" if unit else ""))


def interval(row: Mapping[str, Any], *, with_unit: bool = True) -> str:
    """Format the interval of a receipt row: `0.2 to 9.8 ms`, `12 ms or more`; `-` without one."""
    low, high, unit = row.get("low"), row.get("high"), str(row.get("unit") or "")
    format_end = shown if with_unit else figure
    if low is None or high is None:
        end = low if high is None else high
        return "-" if end is None else "{} or {}".format(format_end(end, unit), "more" if high is None else "less")
    return f"{figure(low, unit)} to {format_end(high, unit)}"


def missed(row: Mapping[str, Any]) -> str:
    """One line about a receipt row that did not pass: value, limit and reason. The row may lack any of them."""
    unit = str(row.get("unit") or "")
    measured = interval(row)
    if measured == "-":
        measured = shown(row.get("value"), unit)
    sign = ">=" if is_minimum(str(row.get("gate"))) else "<="
    against = f"{measured}, limit {sign} {shown(row.get('limit'), unit)}; "
    if measured == "-" or row.get("limit") is None:
        against = ""
    return "{}: {}{}".format(row.get("gate"), against, row.get("detail") or row.get("verdict"))


def refusal(receipt: Mapping[str, Any], *, refuse_doubt: Optional[bool] = None) -> Optional[str]:
    """The verdict that keeps a release from going on; None if it goes on.

    A gate refuses what is shown to be bad. Doubt is written down, and refuses only by the policy of the recipe
    (`inconclusive` of the receipt). One floor must be shown, whatever the policy: better than the most frequent answer.

    Args:
        refuse_doubt: overrides the policy.
    """
    checks = receipt["checks"]
    if receipt["verdict"] == FAIL:
        return FAIL
    if any(check["gate"] == ABOVE_MAJORITY and check["verdict"] != PASS for check in checks):
        return INCONCLUSIVE
    if refuse_doubt is None:
        refuse_doubt = receipt.get("inconclusive", DELIVER) == REFUSE
    return INCONCLUSIVE if refuse_doubt and receipt["verdict"] == INCONCLUSIVE else None


def not_shown(receipt: Mapping[str, Any]) -> List[str]:
    """A line for each check that did not pass, and each gate that was not measured."""
    lines = [missed(check) for check in receipt["checks"] if check.get("verdict") != PASS]
    return lines + ["{gate}: not measured: {why}".format(**one) for one in receipt.get("unmeasured", ())]


def is_accuracy_gated(receipt: Mapping[str, Any]) -> bool:
    """Whether the recipe sets a limit on accuracy, measured or not."""
    gates = [row["gate"] for row in (*receipt["checks"], *receipt.get("unmeasured", ()))]
    return any(gate.startswith("accuracy.") and gate != ABOVE_MAJORITY for gate in gates)


def would_decide(n: Optional[int], of_what: str) -> str:
    """Sentence about the sample size that would decide an inconclusive check; None stands for over 10 million."""
    if n is None:
        return f"too close to the limit to decide, even with 10 million {of_what}"
    return f"about {n} {of_what} would decide"


def read_once(gate: str, value: float, *, limit: float, unit: str, detail: str) -> GateCheck:
    """Check of a value that is read once, without an interval, and may be at most `limit`."""
    verdict = FAIL if value > limit else PASS
    return GateCheck(gate, verdict, round(value, 6), None, None, limit, unit, 1, None, detail)
