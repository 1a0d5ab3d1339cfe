"""A recipe between its text and its validation: plain data, and where each value of it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgepack.recipe.findings import Finding

KeyPath = tuple[str | int, ...]
Problem = tuple[KeyPath, str, str]  # where, reason, fix


@dataclass(frozen=True)
class Document:
    """One parsed recipe: plain data (dict, list, str, int, float, bool, None) and where each value stands."""

    file: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int]  # line of the key or list item, from 1; () is the first line of the document
    raw: dict[KeyPath, str]  # scalars as they are written, so that messages can quote `1.20` and not 1.2
    settings: dict[KeyPath, str] = field(default_factory=dict)  # `--set KEY=VALUE` of what did not come from the file

    def holds(self, path: KeyPath) -> bool:
        """Whether somebody wrote `path`: in the file or with `--set`."""
        return path in self.settings or path in self.lines

    def error(self, path: KeyPath, reason: str, fix: str) -> Finding:
        """A finding at `path`, or at the nearest thing around it that somebody wrote."""
        while path and not self.holds(path):
            path = path[:-1]
        if path in self.settings:
            return Finding("error", self.file, None, reason, fix, self.settings[path])
        return Finding("error", self.file, self.lines.get(path, 1), reason, fix)

    def get(self, *path: str | int) -> Any:
        """The value at `path`; None where there is none."""
        value: Any = self.data
        for key in path:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return value
