"""Rows that show what a model gets wrong, and what quantizing it changed, with their texts.

They stand in the report alone: what travels in a bundle are the golden rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST: Final = 20  # of each kind


@dataclass(frozen=True)
class Example:
    """A row in words: what is true, what the float model and the shipped one answer.

    `text` is the number of its line, `#17`, where the rows stay at home.
    `score` is the probability (0 to 1) that the shipped model gives to the truth: of several labels that of the label
    which it is the least right about; null for spans.
    """

    text: str
    truth: str
    float_answer: str
    answer: str
    score: float | None


@dataclass(frozen=True)
class Examples:
    """The golden rows that the shipped model answers otherwise than the float one, and those it is most wrong about.

    `changed` begins with rows that the float model has right; at most `MOST` of each kind are kept.
    """

    rows: int
    lost: int  # right in float, wrong as shipped
    won: int
    other: int  # another answer, and neither is right
    changed: tuple[Example, ...]
    wrong: tuple[Example, ...]
