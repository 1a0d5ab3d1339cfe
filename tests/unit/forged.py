"""Texts that are commands to a CI server if they are printed as they are."""

from __future__ import annotations

import re
from typing import Any

FORGED = (
    "::error file=app.py,line=1::forged",
    "\u3000::error::forged",
    "odd\n::error::forged",
    "odd ##[error]forged",
    "odd ##vso[task.complete]forged",
    "a" * 90 + " ::error::forged",  # wraps in a table
    "a" * 15 + "_" + "b" * 15 + "_::error::forged",
)


def commands(output: str) -> list[str]:
    """The lines of `output` that GitHub or Azure would obey."""
    return [line for line in output.split("\n") if re.search(r"^\s*::|##\w*\[", line)]


def forge(value: Any, text: str, *, keep: tuple[str, ...]) -> Any:
    """JSON with `text` in place of each string, except for those of the keys `keep`."""
    if isinstance(value, dict):
        return {key: one if key in keep else forge(one, text, keep=keep) for key, one in value.items()}
    if isinstance(value, list):
        return [forge(one, text, keep=keep) for one in value]
    return text if isinstance(value, str) else value
