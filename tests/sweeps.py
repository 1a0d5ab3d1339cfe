"""How much of what could go on for long a run tries: a sample with `-m "not sweep"`, else all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")
_SHARE: Final = 30  # percent of the examples of a property
_whole = True

# No example is timed: how long it takes tells of the machine and what else runs there.
settings.register_profile("whole", deadline=None)
settings.register_profile("sample", deadline=None, max_examples=_SHARE)


def choose(marks: str) -> None:
    """Take the expression of pytest's `-m`. It holds for modules that are imported afterwards."""
    global _whole
    _whole = "not sweep" not in marks
    settings.load_profile("whole" if _whole else "sample")


def examples(count: int) -> int:
    """`count`, or as large a share of it as properties without a number of examples have of theirs."""
    return count if _whole else count * _SHARE // 100


def sample(items: Sequence[T], step: int) -> Sequence[T]:
    """`items`, or the first of each `step` of them."""
    return items if _whole else items[::step]
