"""Separators that the first lines of a table show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.rows.formats import BY_SUFFIX, Dialect, dialect_of, likely_separator


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
        (["sep=;", "text;label", "a;1"], ";"),
        (["text\tlabel", '"a', 'b"\t1', "c\t2"], "\t"),  # a text of two lines, in quotes
    ],
)
def test_the_separator_is_what_cuts_all_lines_alike(lines: list[str], expected: str | None) -> None:
    assert likely_separator(lines) == expected


CSV, TSV = BY_SUFFIX[".csv"], BY_SUFFIX[".tsv"]


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (['"text"\t"label"', '"好"\t"1"'], True),
        (['"text"\tlabel', '"好"\t"1"'], False),
        (['"\t"'], False),
        (["text\tlabel", '"他说""好"""\t1', "差\t0"], False),  # the text of a row, which changes no other
        (["text\tlabel", '"好', '很好"\t1', "差\t0"], False),
        (["text\tlabel", '"好"\t1', "差\t0"], False),  # a text in quotes
        (["text\tlabel", '"好"很""好\t1', "差\t0"], False),
        (["text\tlabel", '"好\t1', "差\t0"], False),
        (["text\tlabel", "好\t1"], False),
        ([], False),
    ],
)
def test_a_table_with_tabs_may_be_quoted_as_a_csv_is(lines: list[str], quoted: bool) -> None:
    assert dialect_of(lines, TSV) == Dialect("\t", quoted, escaped=False, is_said=False)


@pytest.mark.parametrize(
    ("lines", "escaped"),
    [
        ([r'"text","label"', r'"他说\"好\"","1"', r'"差","0"'], True),  # MySQL
        ([r'"text","label"', r'"C:\","1"', r'"差","0"'], False),
        ([r'"text","label"', r'"他说""好\""","1"'], False),
    ],
)
def test_quotes_may_be_escaped_as_mysql_does(lines: list[str], escaped: bool) -> None:
    assert dialect_of(lines, CSV).escaped is escaped


@pytest.mark.parametrize("line", ["sep=;", "SEP=;\r\n", '"sep=;"'])
def test_the_first_line_may_say_the_separator(line: str) -> None:
    for row_format in (CSV, TSV):
        assert dialect_of([line, "text;label", "a,b;1"], row_format)[::3] == (";", True)
    assert not dialect_of(["sep=", "text;label"], CSV).is_said


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
    assert dialect_of(lines, CSV).separator == expected


@given(st.lists(st.text("ab,;|\t\"'{}[] \r\n\x000好。", max_size=20), max_size=12))
def test_no_lines_confuse_the_separators(lines: list[str]) -> None:
    assert likely_separator(lines) in (None, "\t", ",", ";", "|")
    assert dialect_of(lines, CSV).separator in ("\t", ",", ";", "|")
