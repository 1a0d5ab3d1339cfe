"""Figures as text, on the device and in reports: the unit's name, its sign, and how many digits are shown.

Sentences have four significant digits (`shown`); tables have the decimals of the unit, so that columns can be read
(`quantity`).
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional

from edgepack_runtime.messages import message
from edgepack_runtime.util.texts import NOTHING as NOTHING

_DECIMALS = 4


class Unit(NamedTuple):
    """How figures of a unit are shown: in tables `factor * value` with `decimals`, then `sign`."""

    sign: str
    decimals: int
    factor: float = 1.0


# By the name of the unit in receipts.
UNITS: Mapping[str, Unit] = {
    "": Unit("", 3),
    "fraction": Unit(" %", 1, 100.0),
    "percent": Unit(" %", 1),
    "points": Unit(" points", 2),
    "ms": Unit(" ms", 2),
    "MiB": Unit(" MiB", 1),
}


def figure(value: Optional[float], unit: str = "") -> str:
    """Format a value without its unit: `12.5`; `94.12` for the fraction 0.9412; `-` for None."""
    if value is None:
        return NOTHING
    factor = UNITS[unit].factor if unit in UNITS else 1.0
    value = round(value * factor, _DECIMALS) + 0.0  # neither 1e-06 nor -0
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"  # no 1.234e+04


def shown(value: Optional[float], unit: str = "") -> str:
    """Format a value with its unit: `12.5 ms`, `40 %`, `94.12 %` for the fraction 0.9412; `-` for None."""
    if value is not None and unit == "points":
        return message("span.points", value=figure(value, unit))
    return figure(value, unit) + ("" if value is None else _sign(unit))


def interval(low: Optional[float], high: Optional[float], unit: str = "", *, with_unit: bool = True) -> str:
    """Format an interval: `0.2 to 9.8 ms`, `12 ms or more`; `-` without one."""
    format_end = shown if with_unit else figure
    if low is None or high is None:
        return _one_end(format_end(low if high is None else high, unit), high)
    return message("span.to", low=figure(low, unit), high=format_end(high, unit))


def quantity(value: Optional[float], unit: str, more_digits: int = 0, *, with_unit: bool = True) -> str:
    """A figure of a table: `91.2 %` for a fraction, `1.31 ms`, `17.9 MiB`, `0.25 points`; `-` for None.

    Args:
        more_digits: decimals to add.
    """
    if value is None:
        return NOTHING
    decimals = _digits(value, UNITS[unit].decimals) + more_digits
    number = f"{round(value * UNITS[unit].factor, decimals) + 0.0:.{decimals}f}"  # no -0.00
    return number + UNITS[unit].sign if with_unit else number


def span(low: Optional[float], high: Optional[float], unit: str) -> str:
    """An interval of a table: `[89.1, 92.9]`; `120.0 % or more` with one end; `-` for None."""
    if low is None or high is None:
        return _one_end(quantity(low if high is None else high, unit), high)
    return f"[{quantity(low, unit, with_unit=False)}, {quantity(high, unit, with_unit=False)}]"


def telling_digits(value: Optional[float], limit: float, unit: str) -> int:
    """Decimals to add in a table, up to two, until a value and a limit that differ do not look equal."""
    digits = range(0 if value is None or value == limit else 2)
    return sum(quantity(value, unit, more) == quantity(limit, unit, more) for more in digits)


def direction(*, minimum: bool) -> str:
    """The sign before a limit."""
    return ">=" if minimum else "<="


def _sign(unit: str) -> str:
    return UNITS[unit].sign if unit in UNITS else f" {unit}" if unit else ""


def _one_end(end: str, high: Optional[float]) -> str:
    return end if end == NOTHING else f"{end} or {'more' if high is None else 'less'}"


def _digits(value: float, digits: int) -> int:
    """Decimals of a figure: fewer for figures in the hundreds, more for those that would be shown as 0."""
    if 0 < abs(value) < 0.5 / 10**digits:
        shows_with_four_more = round(value, digits + 4) != 0
        is_tiny = abs(value) < 0.5 / 10 ** (digits + 2)
        return digits + (4 if is_tiny and shows_with_four_more else 2)
    return digits if abs(value) < 100 else min(digits, 1)
