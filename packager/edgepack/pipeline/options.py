"""The order of the stages, and the part of a build that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STAGES: Final = ("data", "teacher", "student", "narrow", "prune", "quantize", "export", "select", "bundle", "gate")
OF_A_CANDIDATE: Final = ("student", "narrow", "prune", "quantize", "export")  # with a search, once a candidate


@dataclass(frozen=True)
class BuildOptions:
    """The part of a build that is asked for.

    `until` is the last stage to run. `start` is the first stage to run again although the workspace holds its result.
    With `keep_going`, a candidate or a target that fails does not stop the others.
    """

    until: str | None = None
    start: str | None = None
    keep_going: bool = False

    def ends_before(self, stage: str) -> bool:
        """Whether `stage` comes after the last stage that is asked for."""
        return self.until is not None and STAGES.index(stage) > STAGES.index(self.until)

    @property
    def again(self) -> frozenset[str]:
        """The stages to run again."""
        return frozenset(STAGES[STAGES.index(self.start) :]) if self.start else frozenset()
