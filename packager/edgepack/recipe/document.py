"""Parsed recipe before validation: plain data with the line of each value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgepack.recipe.findings import Finding

KeyPath = tuple[str | int, ...]
Problem = tuple[KeyPath, str, str]  # where, reason, fix


@dataclass(frozen=True)
class Document:
    """One parsed recipe: plain data (dict, list, str, int, float, bool, None) with the line of each value."""

    file: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int]  # line of the key or list item, from 1; () is the first line of the document
    raw: dict[KeyPath, str]  # scalars as written, so that messages quote `1.20` instead of 1.2
    settings: dict[KeyPath, str] = field(default_factory=dict)  # `--set KEY=VALUE` of values that are not from the file

    def holds(self, path: KeyPath) -> bool:
        """Whether the file or `--set` gives a value at `path`."""
        return path in self.settings or path in self.lines

    def error(self, path: KeyPath, reason: str, fix: str) -> Finding:
        """A finding at `path`, or at the nearest section around it that is written."""
        while path and not self.holds(path):
            path = path[:-1]
        if path in self.settings:
            return Finding("error", self.file, None, reason, fix, self.settings[path])
        return Finding("error", self.file, self.lines.get(path, 1), reason, fix)

    def get(self, *path: str | int) -> Any:
        """The value at `path`; None if there is none."""
        value: Any = self.data
        for key in path:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return value
