"""What was found in the files that a bundle carries."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Check:
    """One content check that a bundle passed: what was found, and what the target allows ("<= 2.35"), if it says so.

    `package` is what it was about, where it was about one alone.
    """

    check: str
    found: str
    allowed: str = ""
    package: str = ""


@dataclass(frozen=True)
class Checks:
    """All of them, and what is not wrong and yet worth knowing, a sentence each."""

    passed: tuple[Check, ...] = ()
    told: tuple[str, ...] = ()

    def and_also(self, check: Check | None) -> Checks:
        """With one more, if it was made."""
        return self if check is None else replace(self, passed=(*self.passed, check))
