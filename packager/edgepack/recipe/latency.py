"""What is wrong with the limits on time that a recipe sets, beyond what a single number shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import dotted, listed
from edgepack.recipe.training import Student

_WHERE: Final[KeyPath] = ("gates", "latency")
_PERCENTILES: Final = ("p50_ms", "p95_ms", "p99_ms")
_SAMPLES: Final = {"p50_ms": 130, "p95_ms": 130, "p99_ms": 662}  # that a verdict takes at least
_LONGEST_S: Final = 1200.0  # of a gate at a rate: nobody waits longer for a verdict that may need five times as many


def check_latency(document: Document) -> Iterator[Problem]:
    """Where, reason and fix of each such finding."""
    gate = document.get(*_WHERE)
    if not isinstance(gate, dict):
        return
    yield from _check_order(_WHERE, gate)
    yield from _check_lengths(document, gate.get("by_length"))
    yield from _check_rate(gate.get("open_loop"))


def _check_order(where: KeyPath, section: Mapping[str, Any]) -> Iterator[Problem]:
    """A percentile that may be larger than one above it limits nothing."""
    given = [(key, section[key]) for key in _PERCENTILES if type(section.get(key)) in (int, float)]
    for (key, limit), (above, most) in pairwise(given):
        if limit > most:
            reason = f"`{key}` ({limit:g}) is above `{above}` ({most:g}), so it limits nothing"
            yield (*where, key), reason, f"swap them, or remove `{key}`"


def _check_lengths(document: Document, budgets: Any) -> Iterator[Problem]:
    where: KeyPath = (*_WHERE, "by_length")
    before = 0
    for index, budget in enumerate(budgets if isinstance(budgets, list) else ()):
        if not isinstance(budget, dict):
            continue
        here: KeyPath = (*where, index)
        yield from _check_order(here, budget)
        yield from _check_limits(here, budget)
        most = budget.get("max_tokens")
        if type(most) is not int:
            continue
        if most <= before:
            reason = f"`{dotted((*here, 'max_tokens'))}` is {most}, and the budget before it ends at {before}"
            yield (*here, "max_tokens"), reason, "order the budgets from short to long texts, each length once"
        elif before >= (length := _max_length(document)):
            reason = f"`{dotted(here)}` is for texts of more than {before} tokens, and `student.max_length` is {length}"
            yield (*here, "max_tokens"), reason, "remove it: longer texts are cut, and count as those of that length"
        elif most > length:
            reason = f"`{dotted((*here, 'max_tokens'))}` is {most}, and `student.max_length` is {length}"
            yield (*here, "max_tokens"), reason, f"write `max_tokens: {length}`: longer texts are cut to that"
        before = max(before, most)


def _check_rate(loop: Any) -> Iterator[Problem]:
    where: KeyPath = (*_WHERE, "open_loop")
    if not isinstance(loop, dict):
        return
    yield from _check_order(where, loop)
    yield from _check_limits(where, loop)
    rate: Any = loop.get("rate_per_s")
    needed = max((samples for key, samples in _SAMPLES.items() if loop.get(key) is not None), default=0)
    if type(rate) in (int, float) and rate > 0 and needed / rate > _LONGEST_S:
        reason = f"`{dotted((*where, 'rate_per_s'))}`: {needed} texts at {rate:g} a second take {needed / rate:.0f} s"
        fix = "gate `p50_ms` and `p95_ms` of `latency` instead: texts so far apart never wait for each other"
        yield (*where, "rate_per_s"), reason, fix


def _check_limits(where: KeyPath, section: Mapping[str, Any]) -> Iterator[Problem]:
    if all(section.get(key) is None for key in _PERCENTILES):
        fix = f"set one of {listed(_PERCENTILES)}, or remove it"
        yield where, f"`{dotted(where)}` sets no limit, so nothing would be gated", fix


def _max_length(document: Document) -> int:
    length = document.get("student", "max_length")
    return length if type(length) is int else int(Student.model_fields["max_length"].default)
