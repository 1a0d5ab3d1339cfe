"""Findings about a recipe or its data: place, reason and fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgepack.messages import message

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
    column: int | None = None  # of the key, from 1
    key: str = ""  # of a recipe, dotted: `teacher.epochs`

    @property
    def place(self) -> str:
        """`file:line:column` as far as they are known, or the `--set KEY=VALUE` of the command line."""
        numbers = [str(number) for number in (self.line, self.column) if number is not None]
        return self.setting or ":".join([str(self.file), *numbers])

    @property
    def sentence(self) -> str:
        """The finding as a message."""
        severity = message(f"warn.{self.severity}")
        return message("warn.finding", place=self.place, severity=severity, reason=self.reason, fix=self.fix)

    def __str__(self) -> str:
        return self.sentence


def errors(findings: list[Finding]) -> list[Finding]:
    """The findings that stop a build."""
    return [finding for finding in findings if finding.severity == "error"]
