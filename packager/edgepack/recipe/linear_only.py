"""`wide: only`: which keys of a recipe it does not use, which it refuses, and how to change another recipe to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from edgepack.recipe.messages import dotted
from edgepack.recipe.model import Recipe
from edgepack.recipe.yaml import Document, KeyPath, Problem
from edgepack_runtime.schema.gates import AccuracyLimits

_UNUSED: Final[tuple[KeyPath, ...]] = (
    ("teacher",), ("student",), ("quantize",), ("data", "unlabelled"), ("data", "calibration"), ("wheels",), ("cuda",),
)  # fmt: skip
# Keys that would judge the linear model against an encoder, or by its tokens -> the reason, and the fix.
_REFUSED: Final[Mapping[KeyPath, tuple[str, str]]] = {
    ("search",): ("its candidates are encoders", "remove it"),
    ("gates", "accuracy", "max_drop_points"): (
        "it is a drop against the float encoder",
        "remove it; `min` and `max_regression_points` judge a linear model",
    ),
    ("gates", "latency", "by_length"): (
        "it counts tokens, and a linear model reads characters",
        "remove it; `p50_ms`, `p95_ms` and `p99_ms` are for all texts",
    ),
}


KEYS: Final = tuple(map(dotted, (*_UNUSED, *_REFUSED)))  # keys of a recipe that `wide: only` has no use for


def unused(document: Document) -> tuple[str, ...]:
    """The dotted keys that the recipe sets and `wide: only` does not use."""
    return tuple(dotted(path) for path in _UNUSED if document.get(*path))


def check_refused(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error."""
    for path, (why, fix) in _REFUSED.items():
        if document.get(*path):
            yield path, f"`{dotted(path)}` does not apply to `wide: only`: {why}", fix


def settings(recipe: Recipe, *, searched: bool) -> tuple[str, ...]:
    """What `--set` takes to build the linear model of a valid `recipe` alone, with the gates that can judge it.

    Args:
        searched: whether `recipe` is a candidate of a search.
    """
    found = ["wide=only"]
    accuracy, latency = recipe.gates.accuracy, recipe.gates.latency
    if searched:
        found.append("search=null")
    if accuracy is not None and accuracy.max_drop_points is not None:
        others = set(AccuracyLimits.ONE_OF) - {"max_drop_points"}
        keeps_a_limit = any(getattr(accuracy, name) is not None for name in others)  # else the section is refused
        found.append("gates.accuracy.max_drop_points=null" if keeps_a_limit else "gates.accuracy=null")
    if latency is not None and latency.by_length:
        found.append("gates.latency.by_length=[]")
    return tuple(found)
