"""What the gates on accuracy ask for, read from the manifest: of classes, against an earlier release, on which rows."""

from __future__ import annotations

import re
from typing import Dict, Mapping, NamedTuple, Optional

from edgepack_runtime.gate_values import Section

ACCURACY_LIMITS = ("min", "max_drop_points", "max_regression_points", "per_class")
ACCURACY_KEYS = ("metric", "min", "max_drop_points", "baseline", "max_regression_points", "per_class", "confidence")
GOLDEN_KEYS = ("rows", "carry", "sha256")
# Of two-sided intervals. Up to one half says nothing; beyond the other, F1 takes more resamples than there is time for.
ABOVE_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
FIGURES = ("recall", "precision", "f1")  # of a class
PER_CLASS = "accuracy.per_class."  # with one of them behind it: the name of its check
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Floors(NamedTuple):
    """What a figure of a class must reach, 0 to 1: one number for every class, and those of named ones instead."""

    every: Optional[float]
    named: Mapping[str, float]

    def of(self, label: str) -> Optional[float]:
        """That of one class; None where nothing is asked of it."""
        return self.named.get(label, self.every)


def baseline(accuracy: Section) -> Optional[str]:
    """Name and version of the earlier release, of which the manifest holds `name`, `version`, `target` and a digest."""
    facts, points = accuracy.get("baseline"), accuracy.get("max_regression_points")
    if facts is None:
        if points is not None:
            accuracy.refuse("max_regression_points", "is against no release", "set `baseline` to the bundle of one")
        return None
    if points is None:
        fix = "set `max_regression_points`: how much worse than that release the new one may be"
        accuracy.refuse("baseline", "limits nothing by itself", fix)
    name, version = (facts.get("name"), facts.get("version")) if isinstance(facts, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        accuracy.refuse("baseline", f"is {facts!r}")
        return None
    return f"{name} {version}"


def confidence(accuracy: Section) -> Optional[float]:
    """The confidence of every interval on accuracy, above 0.5 and at most 0.999; None for the default."""
    value = accuracy.number("confidence", most=MOST_CONFIDENCE)
    if value is not None and value <= ABOVE_CONFIDENCE:
        accuracy.refuse("confidence", f"is {value!r}")
    return value


def rows_at_home(golden: Section) -> Optional[str]:
    """The sha256 of the labelled rows where they do not travel with the bundle (`carry` is false), else None."""
    carry, digest = golden.get("carry"), golden.get("sha256")
    if type(carry) not in (type(None), bool) or (carry is not False) is not (digest is None):
        golden.refuse("carry", f"is {carry!r}, and `sha256` {digest!r}")
    elif digest is not None and not (isinstance(digest, str) and _SHA256.match(digest)):
        golden.refuse("sha256", f"is {digest!r}")
    else:
        return digest
    return None


def floors(accuracy: Section) -> Dict[str, Floors]:
    """`accuracy.per_class`: `recall` holds for every class, `recall_of` for those that it names; so for the others.

    Returns:
        By figure, of `FIGURES` those that floors are set for.
    """
    section = accuracy.below("per_class", [key for figure in FIGURES for key in (figure, figure + "_of")])
    if section is None:
        return {}
    found = {}
    for figure in FIGURES:
        labels = section.get(figure + "_of")
        labels = list(labels) if isinstance(labels, Mapping) else []
        named = section.below(figure + "_of", labels)
        asked = {} if named is None else {label: named.number(label, below=1.0) for label in labels}
        limits = {label: limit for label, limit in asked.items() if limit is not None}
        one = Floors(section.number(figure, below=1.0), limits)
        if one.every is not None or one.named:
            found[figure] = one
    if not any(section.get(key) for figure in FIGURES for key in (figure, figure + "_of")):
        section.refuse(None, "sets no floor", "set `recall`, `precision` or `f1`, or remove the section")
    return found
