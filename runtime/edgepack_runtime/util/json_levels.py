"""JSON with a fixed limit of levels: how deep Python reads depends on its version, and on who calls."""

from __future__ import annotations

import json
from typing import Any, List

MOST_LEVELS = 64


def loads(text: str, **options: Any) -> Any:
    """`json.loads`.

    Raises:
        ValueError: `text` is not JSON, or nested more deeply than MOST_LEVELS.
        RecursionError: it is nested even more deeply.
    """
    found = json.loads(text, **options)
    require_flat(found, text.count("[") + text.count("{"))
    return found


def require_flat(found: Any, brackets: int) -> None:
    """Raise a ValueError if a value is nested too deeply. Its text has that many opening brackets."""
    if brackets <= MOST_LEVELS:
        return
    level: List[Any] = [found]
    for _ in range(MOST_LEVELS + 1):
        below: List[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        level = below
    if level:
        raise ValueError(f"more than {MOST_LEVELS} levels of lists and objects")
