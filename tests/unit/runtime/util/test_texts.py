"""Texts on a command line, and numbers with nouns."""

from __future__ import annotations

import pytest

from edgepack_runtime.util import texts


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
