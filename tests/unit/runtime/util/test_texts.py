"""Texts on a command line, and numbers with nouns."""

from __future__ import annotations

import os

import pytest

from edgepack_runtime.errors import UsageError
from edgepack_runtime.util import texts


def test_arguments_are_utf8_whatever_the_locale() -> None:
    assert texts.from_arguments([os.fsdecode("很好".encode())]) == ["很好"]
    with pytest.raises(UsageError, match="text 2 is not UTF-8"):
        texts.from_arguments(["a", "\udcff"])
    with pytest.raises(UsageError, match="text 2 is empty"):
        texts.from_arguments(["a", " "])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\u3000",
        "\u200b \ufeff\u00ad",
        "\u2060\x00\x7f",
        "\ufe0f\ufe0e",
        "\U000e0100",
        "\u202e\u2066",
        "\u3164\u115f",
        "\u2800",
    ],
    ids=ascii,
)
def test_a_text_that_shows_nothing_is_empty(text: str) -> None:
    assert texts.is_unseen(text)
    for shown in (f"{text}好", f"☺{text}", f"{text}."):
        assert texts.require_text(shown, "it") == shown
    for item in ((text,), ("好", text), (text, "好")):
        with pytest.raises(UsageError, match="is empty"):
            texts.item_from_fields(item, "line 1")
    with pytest.raises(UsageError, match=r"line 1 is empty\n  why: .* show nothing: U\+200B, U\+FE0F$"):
        texts.require_text(" \u200b\ufe0f\n", "line 1")


@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 3), (10, 3), (2000, 200), (201, 200)])
def test_texts_are_drawn_evenly(count: int, most: int) -> None:
    given = [str(number) for number in range(count)]
    drawn = texts.evenly(given, most)
    assert len(drawn) == len(set(drawn)) == min(count, most)
    assert drawn == sorted(drawn, key=int)
    assert int(drawn[-1]) >= count - count / most - 1


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 minutes"), (1, "1 minute"), (2, "2 minutes"), (1.0, "1 minute"), (0.5, "0.5 minutes"), (90.0, "90 minutes"),
     (1_234_567, "1234567 minutes")],
)  # fmt: skip
def test_numbers_with_nouns(number: float, words: str) -> None:
    assert texts.counted(number, "minute") == words
    assert texts.counted(number, "class", "classes") == words.replace("minutes", "classes").replace("minute", "class")
