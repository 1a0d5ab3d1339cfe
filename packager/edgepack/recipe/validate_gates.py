"""Checks of the recipe section `gates`: limits as a device reads them, and contradictions to other sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.messages import dotted
from edgepack.recipe.paths import check_there
from edgepack.recipe.training import Student
from edgepack_runtime.gate import limits
from edgepack_runtime.stats import metrics

_LENGTHS: Final[KeyPath] = ("gates", "latency", "by_length")
_NO_FIX: Final = "correct the value; docs/reference/recipe.md lists what it may be"


def check_gates(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error."""
    gates = document.get("gates")
    if not isinstance(gates, dict):
        return
    gates = {name: section for name, section in gates.items() if name != "golden"}  # bundles add its digest
    accuracy = gates.get("accuracy")
    if isinstance(accuracy, dict) and isinstance(baseline := accuracy.get("baseline"), str) and baseline:
        yield from check_there(document, ("gates", "accuracy", "baseline"), baseline)
        # A bundle names the release instead of its file.
        gates["accuracy"] = {**accuracy, "baseline": {"name": baseline, "version": ""}}
    _, problems = limits.read(gates)
    for path, reason, fix in problems:
        yield ("gates", *path), reason, fix or _NO_FIX
    yield from _check_metric(document)
    yield from _check_lengths(document)


def _check_metric(document: Document) -> Iterator[Problem]:
    """Errors of the metric. Those that depend on the number of labels are found when the data are read."""
    where: KeyPath = ("gates", "accuracy", "metric")
    metric, columns = document.get(*where), document.get("data", "columns")
    several = isinstance(columns, dict) and columns.get("labels") is not None
    if isinstance(metric, str) and metric in metrics.METRICS:
        tokens = document.get("task") == "token-classification"
        why = metrics.unfit(metric, 2, multi_label=several, tokens=tokens)
        if why is not None:
            yield where, f"`gates.accuracy.metric` is {metric}, which these data do not have", why


def _check_lengths(document: Document) -> Iterator[Problem]:
    """Errors of budgets for texts that are longer than the model reads."""
    budgets, length = document.get(*_LENGTHS), document.get("student", "max_length")
    length = length if type(length) is int else int(Student.model_fields["max_length"].default)
    before = 0
    for index, budget in enumerate(budgets if isinstance(budgets, list) else ()):
        most = budget.get("max_tokens") if isinstance(budget, dict) else None
        if type(most) is not int or most <= before:
            continue
        here: KeyPath = (*_LENGTHS, index)
        if before >= length:
            reason = f"`{dotted(here)}` is for texts of more than {before} tokens, and `student.max_length` is {length}"
            yield (*here, "max_tokens"), reason, "remove it: longer texts are cut, and count as those of that length"
        elif most > length:
            reason = f"`{dotted((*here, 'max_tokens'))}` is {most}, and `student.max_length` is {length}"
            yield (*here, "max_tokens"), reason, f"write `max_tokens: {length}`: longer texts are cut to that"
        before = most
