"""Guesses about tables that say nothing about themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.data.detect import likely_columns, looks_like_a_row, looks_tagged, mixed_separators
from edgepack_runtime.rows.formats import likely_separator, split_lines


@pytest.mark.parametrize(
    ("first", "below", "expected"),
    [
        (["text", "label"], [["text", "label"]], False),  # known names speak for a header whatever else holds
        (["评论内容", "情感"], [["很好", "正面"], ["太吵", "负面"]], False),
        (["很好", "正面"], [["太吵", "负面"], ["不错", "正面"]], True),
        (["很好", "1"], [["太吵", "0"]], True),
        (["很好", "-1.5"], [["太吵", "0"]], True),
        (["房间很大，早餐也好", "好评"], [["太吵", "差评"]], True),
        (["x" * 41, "a"], [["y", "b"]], True),
        (["same", "same"], [], True),
        (["id", "review"], [["1", "good"], ["2", "bad"]], False),
        (["id", "review"], [], False),
    ],
)
def test_a_first_line_is_a_row_if_it_is_like_the_others(
    first: list[str], below: list[list[str]], expected: bool
) -> None:
    assert looks_like_a_row(first, below) is expected


def test_the_longest_column_is_the_text() -> None:
    rows = [["1", "房间很大", "正面"], ["2", "太吵了", "负面"], ["3", "服务热情", "正面"], ["broken"]]
    assert likely_columns(rows) == (1, 2)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["北 B-city", "京 I-city", "", "很 O", "大 O"], True),
        (["北\tNN\tB-city", "京\tNN\tE-city"], True),
        (["很 O", "大 O"], False),  # as rows with the label O could be
        (["房间很大\tgood", "太吵了\tbad"], False),
    ],
)
def test_tagged_tokens_are_recognised(lines: list[str], expected: bool) -> None:
    assert looks_tagged(lines) is expected


LINES = st.lists(st.text("ab,;|\t\"'{}[] \r\n\x000好。", max_size=20), max_size=12)


@given(LINES)
def test_no_lines_confuse_the_guesses(lines: list[str]) -> None:
    separator = likely_separator(lines)
    looks_tagged(lines)
    if separator is not None:
        rows = list(split_lines([line for line in lines if line.strip()], separator, quoted=separator in ",;"))
        looks_like_a_row(rows[0], rows[1:])
        text, label = likely_columns(rows)
        assert text != label


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            ["a", "b", "c", "a，b", "a、c", "c,b", "b/a", "a,b、c", "c 、a"],
            (("，", "、", ",", "/"), ["a", "b", "c"]),
        ),
        (["a|b", "b|c", "a", "b", "c", "a|c", "c|a", "b|a", "c|b"], None),  # one separator
        (
            ["a，b", "a、c", "c,b", "b,a", "a,b、c", "c 、a", "a", "b", "c，a", "b、c", "b，c", "其他"],
            (("，", "、", ","), ["a", "b", "c", "其他"]),
        ),
        (["x##1,y##2", "y##1,x##2", "x##1", "y##2", "x##2,y##2", "y##1,x##1"], None),  # parts of names
        (["价格，贵", "服务、好", "房间/大"], None),  # the parts do not recur
        ([], None),
    ],
)
def test_labels_between_several_separators_are_seen(cells: list[str], expected: Any) -> None:
    found = mixed_separators(cells)
    assert found == expected or (found is not None and (set(found[0]), found[1]) == (set(expected[0]), expected[1]))
