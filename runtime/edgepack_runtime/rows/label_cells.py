"""Cells of labels as pandas and MySQL write them: nothing, and lists of Python."""

from __future__ import annotations

import json
import re
from typing import Any, List, Optional

# A missing value of pandas (`nan`, `NaN`, `<NA>`), Python (`None`) and MySQL (`NULL`, `\N`). Not `NONE` or `none`,
# which is a class in stance detection.
NOTHING_WRITTEN = frozenset(("nan", "NaN", "<NA>", "None", "NULL", "\\N"))
_STRING = r"""'[^'\\]*'|"[^"\\]*\""""
# Of strings alone, without escapes: what labels need, and no more than one pass over the cell.
_PYTHON_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*|(?=\])))*\]")


def python_list(cell: str) -> Optional[List[str]]:
    """The strings of a list as Python's `str` writes it; None if the cell is something else."""
    text = cell.strip()
    return [one[1:-1] for one in re.findall(_STRING, text)] if _PYTHON_LIST.fullmatch(text) else None


def label_in(cell: str) -> str:
    """The one label of a cell, also of a list of one; empty if it has none."""
    label = cell.strip()
    if label[:1] == "[":
        found: Any = python_list(label)
        if found is None:
            try:
                found = json.loads(label)
            except (ValueError, RecursionError):
                found = None
        if isinstance(found, list) and len(found) < 2 and all(isinstance(one, str) for one in found):
            label = found[0].strip() if found else ""
    return "" if label in NOTHING_WRITTEN else label
