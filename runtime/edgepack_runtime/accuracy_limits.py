"""What the gates on accuracy ask for, read from the manifest: of classes, against an earlier release, on which rows.

Standard library only.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, NamedTuple, Optional

from edgepack_runtime.gate_values import check_keys, invalid, number

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


def baseline(facts: Any) -> Optional[str]:
    """Name and version of the earlier release, of which the manifest says `name`, `version`, `target` and a digest.

    Raises:
        BundleInvalidError: it says something else.
    """
    if facts is None:
        return None
    name, version = (facts.get("name"), facts.get("version")) if isinstance(facts, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        raise invalid(f"accuracy.baseline is {facts!r}")
    return f"{name} {version}"


def confidence(section: Mapping[str, Any]) -> Optional[float]:
    """That of every interval on accuracy, above 0.5 and at most 0.999; None where nothing is said.

    Raises:
        BundleInvalidError: it says something else.
    """
    value = number(section, "accuracy", "confidence", below=1.0)
    if value is not None and not ABOVE_CONFIDENCE < value <= MOST_CONFIDENCE:
        raise invalid(f"accuracy.confidence is {value!r}")
    return value


def rows_at_home(golden: Mapping[str, Any]) -> Optional[str]:
    """The sha256 of the labelled rows where they do not travel with the bundle (`carry` is false), else None.

    Raises:
        BundleInvalidError: it says something else.
    """
    carry, digest = golden.get("carry", True), golden.get("sha256")
    if type(carry) is not bool or carry is not (digest is None):
        raise invalid(f"golden.carry is {carry!r}, and golden.sha256 {digest!r}")
    if digest is not None and not (isinstance(digest, str) and _SHA256.match(digest)):
        raise invalid(f"golden.sha256 is {digest!r}")
    return digest


def floors(section: Any) -> Dict[str, Floors]:
    """`accuracy.per_class`: `recall` holds for every class, `recall_of` for those that it names; so for the others.

    Returns:
        By figure, of `FIGURES` those that floors are set for.

    Raises:
        BundleInvalidError: it asks for something that this runtime does not know, or for nonsense.
    """
    name = "accuracy.per_class"
    if section is None:
        return {}
    check_keys(section, name, [key for figure in FIGURES for key in (figure, figure + "_of")])
    found = {}
    for figure in FIGURES:
        named = section.get(figure + "_of") or {}
        if not isinstance(named, Mapping):
            raise invalid(f"{name}.{figure}_of is {named!r}")
        asked = {label: number(named, f"{name}.{figure}_of", label, below=1.0) for label in named}
        limits = {label: limit for label, limit in asked.items() if limit is not None}
        one = Floors(number(section, name, figure, below=1.0), limits)
        if one.every is not None or one.named:
            found[figure] = one
    return found
