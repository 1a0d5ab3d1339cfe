"""Figures as text: each with its unit, and as many digits as tell something."""

from __future__ import annotations

import pytest

from edgepack_runtime.schema import gates
from edgepack_runtime.schema.figures import UNITS, direction, figure, interval, quantity, shown, span, telling_digits


def test_every_limit_is_in_a_unit_that_is_known() -> None:
    assert {limit.unit for limit in gates.declared().values()} == set(UNITS)


def test_a_fraction_is_told_in_percent_as_in_the_table() -> None:
    assert interval(0.9123, 0.9412, "fraction") == "91.23 to 94.12 %"
    assert interval(0.9123, 0.9412, "fraction", with_unit=False) == "91.23 to 94.12"
    assert interval(0.9123, None, "fraction") == "91.23 % or more"
    assert (shown(0.9412, "fraction"), figure(0.29, "fraction"), shown(None, "fraction")) == ("94.12 %", "29", "-")


def test_figures_of_sentences() -> None:
    assert (shown(None, "ms"), shown(12.34567, "ms"), shown(0.5), shown(3.0, "J")) == ("-", "12.35 ms", "0.5", "3 J")
    assert interval(None, 3.0) == "3 or less"
    assert interval(1e-6, 65.55, "ms") == "0 to 65.55 ms" and shown(-1e-9) == "0"
    assert interval(None, None) == "-"
    assert (shown(40.0, "percent"), shown(12345.6, "ms"), shown(9999.6)) == ("40 %", "12346 ms", "10000")


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.8955, "fraction", "89.5 %"),
        (1.0, "fraction", "100.0 %"),
        (1.2345, "ms", "1.23 ms"),
        (1234.56, "ms", "1234.6 ms"),
        (-0.25, "points", "-0.25 points"),
        (-0.0, "points", "0.00 points"),
        (17.94, "MiB", "17.9 MiB"),
        (0.018, "MiB", "0.018 MiB"),
        (0.001, "ms", "0.0010 ms"),
        (0.0, "points", "0.00 points"),
        (None, "ms", "-"),
    ],
)
def test_figures_of_tables(value: float | None, unit: str, words: str) -> None:
    assert quantity(value, unit) == words
    assert quantity(value, unit, with_unit=False) == words.split()[0]


def test_intervals_of_tables() -> None:
    assert span(0.871, 0.9149, "fraction") == "[87.1, 91.5]"
    assert span(None, 1.0, "ms") == "1.00 ms or less"
    assert span(120.0, None, "percent") == "120.0 % or more"
    assert span(None, None, "ms") == "-"


@pytest.mark.parametrize(
    ("value", "text", "limit"),
    [
        (0.9, "90.0 %", "95.0 %"),
        (0.95, "95.0 %", "95.0 %"),
        (0.9497, "94.97 %", "95.00 %"),
        (0.95004, "95.004 %", "95.000 %"),
        (0.9500004, "95.000 %", "95.000 %"),
        (None, "-", "95.0 %"),
    ],
)
def test_a_value_near_its_limit_has_more_decimals(value: float | None, text: str, limit: str) -> None:
    digits = telling_digits(value, 0.95, "fraction")
    assert (quantity(value, "fraction", digits), quantity(0.95, "fraction", digits)) == (text, limit)


def test_a_limit_has_a_direction() -> None:
    assert (direction(minimum=True), direction(minimum=False)) == (">=", "<=")
