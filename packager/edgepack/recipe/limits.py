"""What is wrong with the limits that a recipe sets, but those on time (`latency`)."""

from __future__ import annotations

from collections.abc import Iterator

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import dotted
from edgepack.recipe.missing import check_there
from edgepack_runtime import metrics


def check_gates(document: Document) -> Iterator[Problem]:
    """Of gates that limit nothing, or what these data do not have."""
    for name, limits in (
        ("accuracy", ("min", "max_drop_points", "max_regression_points", "per_class")),
        ("size", ("model_mib", "bundle_mib")),
    ):
        gate = document.get("gates", name)
        if isinstance(gate, dict) and all(gate.get(limit) is None for limit in limits):
            fix = f"set {' or '.join(f'`{limit}`' for limit in limits)}, or remove the gate"
            yield ("gates", name), f"`gates.{name}` sets no limit, so nothing would be gated", fix
    per_class = document.get("gates", "accuracy", "per_class")
    if isinstance(per_class, dict) and not any(per_class.values()):
        fix = "set `recall`, `precision` or `f1`, or remove the section"
        yield ("gates", "accuracy", "per_class"), "`gates.accuracy.per_class` sets no floor", fix
    yield from _check_baseline(document)
    yield from _check_metric(document)


def _check_baseline(document: Document) -> Iterator[Problem]:
    where: KeyPath = ("gates", "accuracy", "baseline")
    bundle, points = document.get(*where), document.get("gates", "accuracy", "max_regression_points")
    if isinstance(bundle, str) and bundle:
        yield from check_there(document, where, bundle)
        if points is None:
            fix = "set `max_regression_points`: how much worse than that release the new one may be"
            yield where, "`gates.accuracy.baseline` limits nothing by itself", fix
    elif points is not None:
        limit: KeyPath = ("gates", "accuracy", "max_regression_points")
        yield limit, f"`{dotted(limit)}` is against no release", "set `baseline` to the bundle of one"


def _check_metric(document: Document) -> Iterator[Problem]:
    """How many labels there are, only the data tell: what needs two of them is seen when they are read."""
    where: KeyPath = ("gates", "accuracy", "metric")
    metric, columns = document.get(*where), document.get("data", "columns")
    several = isinstance(columns, dict) and columns.get("labels") is not None
    if isinstance(metric, str) and metric in metrics.METRICS:
        tokens = document.get("task") == "token-classification"
        why = metrics.unfit(metric, 2, multi_label=several, tokens=tokens)
        if why is not None:
            yield where, f"`gates.accuracy.metric` is {metric}, which these data do not have", why
