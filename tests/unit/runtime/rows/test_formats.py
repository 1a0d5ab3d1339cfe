"""Separators that the first lines of a table show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.rows.formats import csv_separator, likely_separator


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["text\tlabel", "a, b\t1", "c\t0"], "\t"),
        (["text,label", '"a, b",1', "c,0"], ","),
        (["text;label", "a, b;1", "c;0"], ";"),
        (["text|label", "a, b|1", "c|0"], "|"),
        (["text,label", "a,1", "b", "c,1"], ","),  # one broken line of four is no argument
        (["text,label", "a", "b,1"], None),
        (["only texts", "without labels"], None),
        ([" ", ""], None),
        (['text,"label', "never closed,1"], ","),
        ([], None),
    ],
)
def test_the_separator_is_what_cuts_all_lines_alike(lines: list[str], expected: str | None) -> None:
    assert likely_separator(lines) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["text,label", "a;b,1"], ","),
        (["text;label", "a, b;1"], ";"),
        (["text;label (a,b)", "很好;a", "太吵;b"], ";"),
        (["text,label (a;b)", "很好,a", "太吵,b"], ","),
        (["text,a;b", "x,1;2", "y,3;4"], ","),  # both do
        (["text;a,b", "x", "y"], ","),  # neither does
        (["text\tlabel", "a, b\t1"], "\t"),
        (["text|label", "a, b|1"], "|"),
        (["text"], ","),
        ([], ","),
    ],
)
def test_a_csv_has_the_separator_of_its_header(lines: list[str], expected: str) -> None:
    assert csv_separator(lines) == expected


@given(st.lists(st.text("ab,;|\t\"'{}[] \r\n\x000好。", max_size=20), max_size=12))
def test_no_lines_confuse_the_separators(lines: list[str]) -> None:
    assert likely_separator(lines) in (None, "\t", ",", ";", "|")
    assert csv_separator(lines) in ("\t", ",", ";", "|")
