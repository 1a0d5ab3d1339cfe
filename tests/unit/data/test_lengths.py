"""Lengths in tokens, estimated without a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.data.lengths import (
    COUNTED_TOKENS,
    Lengths,
    check_lengths,
    describe_lengths,
    estimate_tokens,
    suggest_max_length,
)
from edgepack_runtime.schema.maxima import MAX_TOKENS


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("很好", 2),
        ("很好，真的！", 6),
        ("a", 1),
        ("wifi", 1),
        ("hotel", 2),
        ("2008年", 2),
        ("很好 ok  \t 10000", 5),
        ("～～★", 3),
        ("_a_", 3),
        ("𠀀𠀁", 2),
        (" \u3000\n", 0),
    ],
)
def test_tokens_are_ideographs_marks_and_pieces_of_words(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens + 2
    assert estimate_tokens("房间很大", text) == 4 + tokens + 3  # a pair has a separator more


@given(st.text())
def test_an_estimate_is_at_most_one_token_a_character(text: str) -> None:
    assert 2 <= estimate_tokens(text) <= len(text) + 2


def of(*tokens: int) -> Lengths:
    return Lengths.from_texts("好" * (count - 2) for count in tokens)


def test_percentiles_are_lengths_that_occur_and_shares_count_longer_texts() -> None:
    hundred = of(*range(11, 111))
    assert [hundred.percentile(share) for share in (0, 0.5, 0.95, 0.99, 1)] == [11, 60, 105, 109, 110]
    assert Lengths().percentile(0.99) == 0
    assert of(7).percentile(0.5) == 7
    assert of(10, 11, 12, 13).share_above(11) == 0.5
    assert Lengths().share_above(5) == 0.0
    line = describe_lengths({"train": of(5, 6, 7), "test": of(9)})
    assert line == "tokens in a text, estimated: train p50 6, p95 7, p99 7; test p50 9, p95 9, p99 9"


def test_lengths_come_back_from_their_counts() -> None:
    lengths = of(5, 5, 9)
    assert lengths.rows_by_tokens == {5: 2, 9: 1}
    assert Lengths(lengths.rows_by_tokens).percentile(1) == 9
    assert Lengths.from_texts(["好" * 10_000]).rows_by_tokens == {COUNTED_TOKENS: 1}
    counted = Lengths()
    counted.add("房间很大", "WiFi 不错")
    assert counted.rows_by_tokens == {10: 1}


@pytest.mark.parametrize(("tokens", "expected"), [(3, 16), (16, 16), (17, 32), (100, 112), (600, 512)])
def test_max_length_is_suggested_in_steps(tokens: int, expected: int) -> None:
    assert suggest_max_length(of(tokens)) == expected


def test_texts_that_the_longest_input_cuts_are_warned_of() -> None:
    lengths = {"test": Lengths.from_texts(["好" * 10_000])}
    [finding] = check_lengths(lengths, {"model.max_length": MAX_TOKENS}, Path("recipe.yaml"))
    assert finding.reason.startswith("about 100.0% of the test texts are longer than 8192 tokens")


def test_limits_that_cut_more_than_one_percent_are_warned_of() -> None:
    file = Path("recipe.yaml")
    lengths = {"train": of(*[10] * 99, 40), "dev": of(40), "test": of(*[10] * 98, 40, 40)}
    assert check_lengths(lengths, {"student.max_length": 40}, file) == []
    found = check_lengths(lengths, {"teacher.max_length": 32, "student.max_length": 32}, file)
    assert [str(finding) for finding in found] == [
        "recipe.yaml: warning: about 2.0% of the test texts are longer than 32 tokens "
        "(`teacher.max_length`, `student.max_length`) and would be cut; 99% have at most 40\n"
        "    fix: `predict --long windows` reads such texts whole; or use 48, which costs time on the device"
    ]
    [finding] = check_lengths(lengths, {"model.max_length": 32}, file, 32)  # tokens that the model can read
    assert finding.fix == "`predict --long windows` reads such texts whole"
    [finding] = check_lengths(lengths, {"model.max_length": 32}, file, None)  # of a graph
    assert finding.fix.endswith("reads such texts whole; a longer limit needs a graph that was made for it")
    found = check_lengths(lengths, {"teacher.max_length": 64, "student.max_length": 8}, file)
    assert [finding.reason.split(" (")[0] for finding in found] == [
        "about 100.0% of the train texts are longer than 8 tokens",
        "about 100.0% of the test texts are longer than 8 tokens",
    ]
