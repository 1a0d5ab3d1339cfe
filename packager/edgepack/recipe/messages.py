"""Words that findings share: suggestions and lists."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from edgepack.messages import message


def did_you_mean(word: str, choices: Iterable[str], otherwise: str) -> str:
    """The fix for a word that is not one of `choices`: the nearest one, else `otherwise`."""
    near = difflib.get_close_matches(word.lower(), list(choices), n=1, cutoff=0.6)
    return message("mistake.did_you_mean", word=near[0]) if near else otherwise


def listed(words: Iterable[str]) -> str:
    """`a`, `b`, `c`."""
    return ", ".join(f"`{word}`" for word in words)
