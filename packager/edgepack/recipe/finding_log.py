"""Log of the findings of one file: a few errors of each kind and the number of others; one warning of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edgepack.messages import message
from edgepack.recipe.findings import Finding, Severity

# Listed errors, and lines of warnings, of one kind in one file; more are counted.
MAX_LISTED: Final[Mapping[Severity, int]] = {"error": 20, "warning": 5}

_Kind = tuple[str, Severity]


@dataclass
class FindingLog:
    """Findings of one file: of each kind at most MAX_LISTED errors and the number of others, or one warning."""

    file: Path
    columns_place: str = ""  # where the recipe names the columns of the file, as ` (recipe.yaml:12)`
    ended: bool = False  # whether the rest of the file could not be read
    _kept: dict[_Kind, list[Finding]] = field(default_factory=dict)
    _counts: dict[_Kind, int] = field(default_factory=dict)

    def add(self, kind: str, severity: Severity, line: int | None, reason: str, fix: str | Callable[[], str]) -> None:
        """Add one finding. `kind` describes the findings beyond the limit, whose `fix` is not computed."""
        key = kind, severity  # an error never hides behind a warning
        self._counts[key] = self._counts.get(key, 0) + 1
        kept = self._kept.setdefault(key, [])
        if len(kept) < MAX_LISTED[severity]:
            kept.append(Finding(severity, self.file, line, reason, fix if isinstance(fix, str) else fix()))

    def end(self, kind: str, line: int | None, reason: str, fix: str) -> None:
        """Add the error after which the file could not be read."""
        self.add(kind, "error", line, reason, fix)
        self.ended = True

    def stop(self, finding: Finding) -> None:
        """Add `finding` as the error after which the file could not be read."""
        self.end("unreadable", finding.line, finding.reason, finding.fix)

    def count_more(self, kind: str, severity: Severity, more: int) -> None:
        """Count `more` findings of a kind beyond the limit."""
        if more > 0:
            self._counts[kind, severity] += more

    def left_out(self) -> tuple[Finding, ...]:
        """One warning of each kind, where rows with errors are left out."""

        def warned(one: Finding) -> Finding:
            if one.severity == "warning":
                return one
            return replace(one, severity="warning", reason=message("found.left_out", reason=one.reason))

        most = MAX_LISTED["warning"]
        return tuple(_together([*map(warned, kept[:most])], self._counts[key]) for key, kept in self._kept.items())

    def findings(self) -> tuple[Finding, ...]:
        """All findings by kind, in the order of the first of each kind."""
        result: list[Finding] = []
        for (kind, severity), kept in self._kept.items():
            count = self._counts[kind, severity]
            if severity == "warning":
                result.append(_together(kept, count))
                continue
            result += kept
            if count > len(kept):
                reason = f"{count - len(kept)} more: {kind} ({count} in all)"
                result.append(Finding(severity, self.file, None, reason, kept[0].fix))
        return tuple(result)


def _together(warnings: Sequence[Finding], count: int) -> Finding:
    """The first of `count` warnings of a kind, with the lines of the next ones, which need the same."""
    first, *others = warnings
    if count == 1:
        return first
    lines = ", ".join(f"{other.line}" for other in others if other.line is not None)
    lines += ", ..." if count > len(warnings) else ""
    at = "found.at_lines" if count > 2 else "found.at_line"
    where = message(at, lines=lines) if any(other.line is not None for other in others) else ""
    return replace(first, reason=message("found.more", reason=first.reason, n=count - 1, where=where))
