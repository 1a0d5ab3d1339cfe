"""Cells of labels, as training and device both read them: of annotation tools, pandas, MySQL and Python."""

from __future__ import annotations

import re
from typing import Any, List, Optional

from edgepack_runtime.util import json_levels
from edgepack_runtime.util.texts import has_surrogate, is_unseen

# A missing value of pandas (`nan`, `NaN`, `<NA>`), Python (`None`) and MySQL (`NULL`, `\N`). Not `NONE` or `none`,
# which is a class in stance detection.
NOTHING_WRITTEN = frozenset(("nan", "NaN", "<NA>", "None", "NULL", "\\N"))
NO_AGREEMENT = "-"  # in CLUE's files: the annotators agreed on no label
_CHOSEN = ("choices", "taxonomy")
_NUMBERS = ("rating", "number")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]{1,3})?", re.IGNORECASE)
_LARGEST = 1e300
_STRING = r"""'[^'\\]*'|"[^"\\]*\""""
# Of strings alone, without escapes: what labels need, and no more than one pass over the cell.
_PYTHON_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*|(?=\])))*\]")


def label_in(value: object) -> str:
    """The one label of a cell; empty if it has none, or several."""
    label = single(labels_in(value))
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    text = label.strip() if isinstance(label, str) else ""
    return "" if text in NOTHING_WRITTEN or text == NO_AGREEMENT or is_unseen(text) else text


def number_in(value: object) -> Optional[float]:
    """The number of a cell, in JSON or as text; None if it holds something else, infinity or no number included."""
    value = single(labels_in(value))
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and -_LARGEST < value < _LARGEST else None  # type: ignore[arg-type, operator]


def single(value: object) -> object:
    """The label of a list of one, None of an empty list; any other value as it is."""
    if isinstance(value, list) and len(value) < 2:
        return value[0] if value else None
    return value


def labels_in(value: object) -> object:
    """A value with labels as a list, as annotation tools write them; one label as it is.

    Label Studio writes several choices as `{"choices": [...]}`, a rating as `{"rating": 4}`, a number as
    `{"number": 2.5}`, and a choice in a tree as the list of its branches.
    """
    value = parsed(value)
    if isinstance(value, dict) and len(value) == 1:
        [(key, inner)] = value.items()
        if key in _CHOSEN:
            value = inner if isinstance(inner, list) else [inner]
        elif key in _NUMBERS and isinstance(inner, (int, float)):
            value = [str(inner)]
    if not isinstance(value, list):
        return value
    labels: List[object] = []
    for item in value:
        inside = labels_in(item) if isinstance(item, dict) else item
        if isinstance(item, dict) and isinstance(inside, list):
            labels += inside
        else:
            labels.append("/".join(item) if _is_path(item) else item)
    return labels


def _is_path(item: object) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(part, str) for part in item)


def parsed(value: object) -> object:
    """The list or object in a cell that holds one as JSON, or a list of strings as Python; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            found: object = json_levels.loads(value)
        except (ValueError, RecursionError):
            strings = python_list(value)
            return value if strings is None else strings
        # The cell was checked as text before, in which an escape is six characters.
        return value if has_half(found) else found
    return value


def python_list(cell: str) -> Optional[List[str]]:
    """The strings of a list as Python's `str` writes it; None if the cell is something else."""
    text = cell.strip()
    return [one[1:-1] for one in re.findall(_STRING, text)] if _PYTHON_LIST.fullmatch(text) else None


def has_half(*values: object) -> bool:
    """Whether a string holds a lone surrogate, also a string inside a list or an object."""
    left: List[Any] = list(values)
    while left:
        value = left.pop()
        if isinstance(value, str) and has_surrogate(value):
            return True
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
    return False
