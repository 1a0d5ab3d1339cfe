"""Stages by name, in lists and in what a build prints: what a test says of them holds in recipes with further ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# The only list of all stages in the tests, in the order of a build.
ORDER = (
    "examples",
    "data",
    "graphs",
    "linear",
    "teacher",
    "model",
    "student",
    "width_pruning",
    "vocabulary_trimming",
    "quantize",
    "export",
    "select",
    "combine",
    "bundle",
    "gate",
)

# The stages that many tests are about, in no order. A further one need not be here: its own tests name it, and the
# others pass over it.
KNOWN = frozenset((
    *("examples", "data", "graphs", "linear", "teacher", "student", "width_pruning", "vocabulary_trimming"),
    *("quantize", "export", "combine", "select", "bundle", "gate"),
))  # fmt: skip


def known(found: Iterable[str]) -> list[str]:
    """Those of `found` that are in KNOWN, in the order in which they come and as often as they come.

    What is found may name a candidate after the stage: `student epochs=1`.
    """
    return [name for name in found if name.partition(" ")[0] in KNOWN]


def ordered(stages: Iterable[str]) -> list[str]:
    """Different stages in the order of a build."""
    return sorted(stages, key=ORDER.index)


@dataclass(frozen=True)
class Begun:
    """A line of progress: `[4/15] quantize method=dynamic (cached)`.

    Attributes:
        label: the candidate that the stage is for; empty if it is for all.
        note: why the stage runs, or "cached"; empty if there is nothing to say.
    """

    number: int
    total: int
    stage: str
    label: str
    note: str


_BEGUN = re.compile(r"^\[(\d+)/(\d+)\] (\S+)(?: ([^(].*?))?(?: \((.*)\))?$", re.MULTILINE)


def begun(said: str) -> list[Begun]:
    """The lines of stages in what a build said. They count from one, and all to the same total."""
    found = [
        Begun(int(number), int(total), stage, label, note) for number, total, stage, label, note in _BEGUN.findall(said)
    ]
    assert found, said
    total = found[0].total
    assert [(one.number, one.total) for one in found] == [(number + 1, total) for number in range(len(found))], said
    assert len(found) <= total, said
    return found
