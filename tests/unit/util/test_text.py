"""Texts from outside, made safe for a terminal and for the log of a CI server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.forged import FORGED, commands

from edgepack.util.text import json_text, rounded_duration, safe, safe_lines, shortest, two_digits_up


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\u003a:error::x"),
        ("  ::error::x", "  \\u003a:error::x"),
        ("a\n::b", "a\\u000a::b"),
        ("a ##[error]b", "a \\u0023#[error]b"),
        ("##vso[x]", "\\u0023#vso[x]"),
        ("###[x]", "#\\u0023#[x]"),
        ("ssh://[fe80::1] Ort::Exception ## [x] 很好", "ssh://[fe80::1] Ort::Exception ## [x] 很好"),
    ],
)
def test_only_the_start_of_a_command_to_ci_is_escaped(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_each_line_of_a_text_is_safe() -> None:
    assert safe_lines("a\n::b\r\n##[c]", "  ") == "a\n  \\u003a:b\\u000d\n  \\u0023#[c]"


@given(st.text() | st.lists(st.sampled_from([":", "#", "[", "vso", " ", "\n", "\\"])).map("".join))
def test_json_is_printable_and_reads_as_it_was(text: str) -> None:
    for options in ({}, {"indent": 1}):
        shown = json_text({"key": [text, "很好"]}, **options)
        assert shown.replace("\n", "").isprintable()
        assert "很好" in shown
        assert commands(shown) == []
        assert json.loads(shown) == {"key": [text, "很好"]}


def test_json_escapes_what_a_terminal_or_ci_obeys() -> None:
    for text in (*FORGED, "\x7f\x9b8m\u202e\u2028\U000e0001\ud800"):
        shown = json_text(text)
        assert shown.isprintable() and commands(shown) == []
        assert json.loads(shown) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.21, "1.3"), (1.2, "1.2"), (0.0612, "0.062"), (9.99, "10"), (113.0, "120"), (20.0, "20")]
)
def test_a_limit_is_rounded_up_to_two_digits(value: float, text: str) -> None:
    assert two_digits_up(value) == text and float(text) >= value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (8.4, "8 s"), (60, "1 min"), (5_940, "99 min"), (7_300, "2 h")],
)
def test_an_estimate_has_one_unit(seconds: float, text: str) -> None:
    assert rounded_duration(seconds) == text


def test_a_path_below_the_working_directory_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert shortest(tmp_path / "below" / "results") == "results"
    assert shortest(Path("results")) == "results"
    assert shortest(tmp_path) == str(tmp_path)
