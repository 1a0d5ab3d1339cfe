"""Lines of logs in the columns that COLUMNS asks for."""

from __future__ import annotations

import pytest

from edgepack_runtime.util.columns import LEAST, asked, width, wrapped

TABLE = "accuracy.min                 93.3    91.57 to 94.77      >= 85 %  1000     pass"


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("a line of words", None, ["a line of words"]),
        ("a line of words", 20, ["a line of words"]),
        ("  a line of words", 12, ["  a line", "    of words"]),
        ("first\na line of words", 10, ["first", "a line", "  of words"]),
        ("延迟的中位数，平均", 12, ["延迟的中位", "  数，平均"]),
        ("see /a/path/without/a/place", 10, ["see", "  /a/path/without/a/place"]),
        (TABLE, 40, [TABLE]),
    ],
)
def test_lines_go_on_between_words_and_tables_do_not(text: str, columns: int | None, lines: list[str]) -> None:
    assert wrapped(text, columns).split("\n") == lines


def test_a_chinese_character_takes_two_columns() -> None:
    assert (width("ab"), width("中文ab")) == (2, 6)


@pytest.mark.parametrize(("value", "columns"), [("80", 80), ("5", LEAST), ("", None), ("0", None), ("wide", None)])
def test_columns_are_those_of_the_environment(value: str, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", value)
    assert asked() == columns
