"""Reports of builds and gates: JSON document, HTML page, JUnit XML, Markdown.

The functions here format figures, for the terminal and for the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from edgepack.util.text import counted
from edgepack_runtime.schema.gates import is_minimum

# unit of a receipt -> factor, decimals, and the unit to show
_UNITS: Final[Mapping[str, tuple[float, int, str]]] = {
    "fraction": (100.0, 1, " %"),
    "points": (1.0, 2, " points"),
    "ms": (1.0, 2, " ms"),
    "MiB": (1.0, 1, " MiB"),
    "percent": (1.0, 1, " %"),
}
NOTHING: Final = "-"
NOT_MEASURED: Final = "not measured"
# Words for results that did not pass, by verdict.
_OF_RESULTS: Final = {"fail": "failed", "inconclusive": "inconclusive", NOT_MEASURED: NOT_MEASURED}


def quantity(value: float | None, unit: str, more_digits: int = 0) -> str:
    """A figure with its unit: `91.2 %` for a fraction, `1.31 ms`, `17.9 MiB`, `0.25 points`; `-` for None."""
    if value is None:
        return NOTHING
    return _fixed(value, unit, more_digits) + _UNITS[unit][2]


def measured(check: Mapping[str, Any]) -> str:
    """The measured value of a check with its unit."""
    return quantity(check["value"], check["unit"], _more_digits(check))


def span(low: float | None, high: float | None, unit: str) -> str:
    """An interval in the unit of `quantity`: `[89.1, 92.9]`; `120.0 % or more` with one end; `-` for None."""
    if low is None or high is None:
        end = quantity(low if high is None else high, unit)
        return end if end == NOTHING else f"{end} or {'more' if high is None else 'less'}"
    return f"[{_fixed(low, unit)}, {_fixed(high, unit)}]"


def _fixed(value: float, unit: str, more_digits: int = 0) -> str:
    factor, digits, _ = _UNITS[unit]
    decimals = _digits(value, digits) + more_digits
    return f"{round(value * factor, decimals) + 0.0:.{decimals}f}"  # no -0.00


def limit(check: Mapping[str, Any]) -> str:
    """The limit of a check with its direction: `>= 88.0 %` or `<= 5.00 ms`."""
    direction = ">=" if is_minimum(str(check["gate"])) else "<="
    return f"{direction} {quantity(check['limit'], check['unit'], _more_digits(check))}"


def _more_digits(check: Mapping[str, Any]) -> int:
    """Decimals to add, up to two, until a value and a limit that differ do not look equal."""
    value, limit, unit = check["value"], check["limit"], check["unit"]
    digits = range(0 if value is None or value == limit else 2)
    return sum(quantity(value, unit, more) == quantity(limit, unit, more) for more in digits)


def unmet(receipt: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a receipt that did not pass: failed ones, then inconclusive ones."""
    return [check for verdict in ("fail", "inconclusive") for check in receipt["checks"] if check["verdict"] == verdict]


def total(found: Mapping[str, Any]) -> str:
    """Summary of a document of `gating.results.document`; for one result its verdict.

    Example: `fail (3 of 5 results passed; 1 failed, 1 not measured)`.
    """
    verdicts = Counter(str(result["verdict"]) for result in found["results"])
    many = verdicts.total()
    if many < 2:
        return str(found["verdict"])
    others = [f"{verdicts[verdict]} {words}" for verdict, words in _OF_RESULTS.items() if verdicts[verdict]]
    passed = f"{verdicts['pass']} of {counted(many, 'result')} passed"
    return f"{found['verdict']} ({'; '.join(filter(None, (passed, ', '.join(others))))})"


def _digits(value: float, digits: int) -> int:
    """Decimals of a figure: fewer for figures in the hundreds, more for those that would be shown as 0."""
    if 0 < abs(value) < 0.5 / 10**digits:
        return digits + 2
    return digits if abs(value) < 100 else min(digits, 1)
