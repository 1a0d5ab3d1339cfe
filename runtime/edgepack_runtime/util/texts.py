"""Items that a model takes (a text or a pair), their checks, and counts in words.

A text must not be empty: an empty line in the middle of a file is a mistake more often than a wish, and skipping
it would shift every answer after it by one line.
"""

from __future__ import annotations

import os
from typing import List, Optional, Sequence, Tuple, Union

from edgepack_runtime.errors import UsageError

Item = Union[str, Tuple[str, str]]  # what a model is asked about: a text, or a pair of texts


def checked(text: str, where: str) -> str:
    """`text` without its line end.

    Raises:
        UsageError: naming `where`, when it is empty or only white space.
    """
    text = text.rstrip("\r\n")
    if not text.strip():
        raise UsageError(f"{where} is empty", fix="remove it, or give it a text")
    return text


def item_from_fields(fields: Sequence[str], where: str) -> Item:
    """One or two fields of a row as what is asked about. Raises as `checked`."""
    if len(fields) == 1:
        return checked(fields[0], where)
    first, second = (checked(field, f"text {number} of {where}") for number, field in enumerate(fields, start=1))
    return first, second


def from_arguments(arguments: Sequence[str]) -> List[str]:
    """Texts given on the command line, which are UTF-8 whatever the locale says.

    Raises:
        UsageError: one is empty or not UTF-8.
    """
    texts = []
    for number, argument in enumerate(arguments, start=1):
        try:
            text = os.fsencode(argument).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"text {number} is not UTF-8", why=str(error), fix="use a UTF-8 terminal") from error
        texts.append(checked(text, f"text {number}"))
    return texts


def evenly(items: Sequence[Item], most: int) -> List[Item]:
    """At most `most` of `items`, evenly spread over them."""
    step = max(1.0, len(items) / most)
    return [items[int(index * step)] for index in range(min(most, len(items)))]


def counted(number: float, noun: str, plural: Optional[str] = None) -> str:
    """`1 row`, `2 rows`, `0.5 minutes`; `2 classes` with `plural`, of nouns that take more than an s."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {plural or noun + 's'}"
