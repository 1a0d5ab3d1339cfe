"""Findings of one file while it is read: a few of each kind, and how many more there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgepack.recipe.findings import Finding, Severity

# Findings of one kind in one file that are listed; the rest is counted. Warnings are hints, errors are work.
MAX_LISTED: Final[Mapping[Severity, int]] = {"error": 20, "warning": 5}


@dataclass
class FindingLog:
    """Findings of one file, MAX_LISTED at most of each kind and then how many more there are."""

    file: Path
    ended: bool = False  # whether the rest of the file could not be read
    _kept: dict[str, list[Finding]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, severity: Severity, line: int | None, reason: str, fix: str) -> None:
        """Note one finding; `kind` says in few words what the findings beyond the limit are."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        kept = self._kept.setdefault(kind, [])
        if len(kept) < MAX_LISTED[severity]:
            kept.append(Finding(severity, self.file, line, reason, fix))

    def end(self, kind: str, line: int | None, reason: str, fix: str) -> None:
        """Note the error after which nothing of the file could be read."""
        self.add(kind, "error", line, reason, fix)
        self.ended = True

    def count_more(self, kind: str, more: int) -> None:
        """Note `more` findings of a kind of which enough have been added, without a word on each."""
        if more > 0:
            self._counts[kind] += more

    def findings(self) -> tuple[Finding, ...]:
        """All that was noted, kind by kind, in the order in which the kinds came up."""
        result: list[Finding] = []
        for kind, kept in self._kept.items():
            result += kept
            more = self._counts[kind] - len(kept)
            if more:
                reason = f"{more} more: {kind} ({self._counts[kind]} in all)"
                result.append(Finding(kept[0].severity, self.file, None, reason, kept[0].fix))
        return tuple(result)
