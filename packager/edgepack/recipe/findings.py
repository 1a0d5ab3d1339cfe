"""Findings about a recipe or its data: place, reason and fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One error (nothing runs) or warning (printed and recorded)."""

    severity: Severity
    file: Path
    line: int | None  # from 1; None for the whole file
    reason: str
    fix: str
    setting: str | None = None  # `--set KEY=VALUE`, instead of a line of the file

    @property
    def place(self) -> str:
        """`file:line`, or the `--set KEY=VALUE` of the command line."""
        if self.setting is not None:
            return self.setting
        return f"{self.file}:{self.line}" if self.line is not None else str(self.file)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.reason}\n    fix: {self.fix}"


def errors(findings: list[Finding]) -> list[Finding]:
    """The findings that stop a build."""
    return [finding for finding in findings if finding.severity == "error"]
