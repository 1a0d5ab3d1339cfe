"""The order of the stages, and which part of it a build may be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STAGES: Final = ("data", "teacher", "student", "narrow", "prune", "quantize", "export", "select", "bundle", "gate")
# Run for each candidate where there is a search.
OF_A_CANDIDATE: Final = ("student", "narrow", "prune", "quantize", "export")
OF_A_TARGET: Final = ("bundle", "gate")  # run for each target; the others run once


@dataclass(frozen=True)
class Choice:
    """Which part of a build is wanted.

    `until` is the last stage to run, `start` the first one to make again whatever the workspace holds. With
    `keep_going`, a candidate or a target that fails does not keep the others from being built.
    """

    until: str | None = None
    start: str | None = None
    keep_going: bool = False

    def ends_before(self, stage: str) -> bool:
        """Whether `stage` comes after all that is wanted."""
        return self.until is not None and STAGES.index(stage) > STAGES.index(self.until)

    @property
    def again(self) -> frozenset[str]:
        """The stages to make again."""
        return frozenset(STAGES[STAGES.index(self.start) :]) if self.start else frozenset()
