"""Environment variables in scalars of a recipe: `${NAME}` and `${NAME:-default}`; `$$` is a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgepack.recipe.findings import Finding
from edgepack.recipe.yaml import has_surrogate

MAX_EXPANDED: Final = 256 * 1024  # characters; a small recipe could otherwise expand to gigabytes
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE: Final = re.compile(
    rf"\$(?:(?P<dollar>\$)|\{{(?P<name>{_NAME})(?::-(?P<default>[^${{}}]*))?\}}|(?P<bare>{_NAME})|(?P<broken>\{{[^}}]*\}}?))"
)


@dataclass
class Expansion:
    """Expands variables and collects findings. Values are not expanded again."""

    file: Path
    environment: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list)
    expanded: int = 0

    def __call__(self, text: str, line: int) -> str:
        """`text` with expanded variables. An invalid variable becomes "" and a finding at `line`."""
        return _REFERENCE.sub(lambda match: self._value(match, line), text) if "$" in text else text

    def _value(self, match: re.Match[str], line: int) -> str:
        if match["dollar"]:
            return "$"
        if match["bare"]:
            reason = f"`${match['bare'][:60]}` is not filled in: a variable stands in braces"
            return self._add(line, reason, f"write `${{{match['bare'][:60]}}}`, or `$$` for a dollar sign")
        if match["broken"]:
            reason = f"`${match['broken'][:60]}` names no variable"
            return self._add(line, reason, "write `${NAME}` or `${NAME:-default}`, or `$$` for a dollar sign")
        name, default = match["name"], match["default"]
        value = self.environment.get(name, "")
        if default is not None:
            value = value or default  # as in a shell, `:-` stands for an empty variable too
        elif name not in self.environment:
            fix = f"set it before you run edgepack, or give a default: `${{{name[:60]}:-value}}`"
            return self._add(line, f"the environment variable `{name[:60]}` is not set", fix)
        return self._checked(name, value, line)

    def _checked(self, name: str, value: str, line: int) -> str:
        self.expanded += len(value)
        if self.expanded > MAX_EXPANDED:
            reason = f"the variables of this recipe fill in more than {MAX_EXPANDED} characters"
            return self._add(line, reason, f"look at what `{name}` holds")
        if has_surrogate(value):  # that is how the system hands over bytes that are no text
            return self._add(line, f"the environment variable `{name}` holds bytes that are not UTF-8", "set it again")
        return value

    def _add(self, line: int, reason: str, fix: str) -> str:
        self.findings.append(Finding("error", self.file, line, reason, fix))
        return ""
