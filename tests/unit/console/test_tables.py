"""Columns that give way to each other, and names that go on in the next line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.console import tables

NAME = "latency.sustained.max_slowdown_percent"


@pytest.mark.parametrize(
    ("room", "found"),
    [(99, [9, 4, 6]), (19, [9, 4, 6]), (17, [7, 4, 6]), (15, [5, 4, 6]), (12, [5, 4, 3]), (11, [5, 4, 2]), (10, None)],
)
def test_one_column_after_the_other_gives_way(room: int, found: list[int] | None) -> None:
    columns = (("check", "a.b.c.d.e"), ("pass",), ("value", "1.5 ms"))
    assert tables.widths(columns, [5, 1, 2], (0, 2), room) == found


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (38, [NAME]),
        (37, ["latency.sustained.max_slowdown_", "percent"]),
        (18, ["latency.sustained.", "max_slowdown_", "percent"]),
        (10, ["latency.", "sustained.", "max_", "slowdown_", "percent"]),
        (3, ["latency.", "sustained.", "max_", "slowdown_", "percent"]),
    ],
)
def test_a_name_goes_on_after_a_joint(width: int, lines: list[str]) -> None:
    assert tables.at_joints(NAME, width).split("\n") == lines


def test_the_longest_of_a_column() -> None:
    assert tables.longest_part(["check", NAME]) == len("sustained.")
    assert tables.longest_word(["[-100.0, 9.5]", "-"]) == len("[-100.0,")
    assert tables.longest_word([""]) == tables.longest_part([]) == 0


@given(st.text(alphabet="ab._\u7c7b", max_size=30), st.integers(0, 12))
def test_nothing_of_a_name_is_lost(name: str, width: int) -> None:
    assert tables.at_joints(name, width).replace("\n", "") == name
