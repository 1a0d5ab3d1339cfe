"""Findings: what is wrong in a recipe or in the data it names, with the place, the reason and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`error`: nothing runs) or doubtful (`warning`: recorded and printed)."""

    severity: Severity
    file: Path
    line: int | None  # from 1; null when the whole file is meant
    reason: str
    fix: str
    setting: str | None = None  # the `--set KEY=VALUE` that is meant, instead of a line of the file

    @property
    def place(self) -> str:
        """`file:line` as editors and terminals understand it, or the `--set KEY=VALUE` of the command line."""
        if self.setting is not None:
            return self.setting
        return f"{self.file}:{self.line}" if self.line is not None else str(self.file)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.reason}\n    fix: {self.fix}"


def errors(findings: list[Finding]) -> list[Finding]:
    """Those that stop a build."""
    return [finding for finding in findings if finding.severity == "error"]
