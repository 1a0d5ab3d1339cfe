"""Order of the stages, and options that select a part of a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # its import takes a second, and every command imports this module
    from edgepack.results import Failure

# A search runs these for each candidate.
CANDIDATE_STAGES: Final = ("student", "width_pruning", "vocabulary_trimming", "quantize", "export")
STAGES: Final = (
    *("examples", "data"),
    "graphs",  # of an imported model
    *("linear", "teacher"),
    "model",  # that was trained elsewhere
    *CANDIDATE_STAGES,
    *("select", "combine", "bundle", "gate"),
)


@dataclass(frozen=True)
class BuildOptions:
    """The part of a build to run.

    Attributes:
        until: the last stage to run.
        start: the first stage to run again, cached or not.
        force: run every stage again.
        keep_going: other candidates and targets continue after one fails.
        failed_candidates: those that failed elsewhere; they are not tried here.
        strict: an inconclusive gate refuses its bundle, whatever the recipe says.
    """

    until: str | None = None
    start: str | None = None
    force: bool = False
    keep_going: bool = False
    failed_candidates: tuple[Failure, ...] = ()
    strict: bool = False

    def ends_before(self, stage: str) -> bool:
        """Whether `stage` comes after the last stage to run."""
        return self.until is not None and STAGES.index(stage) > STAGES.index(self.until)

    def forced_by(self, stage: str) -> str | None:
        """The option that makes `stage` run although its result is cached; None if there is none."""
        if stage not in self.again:
            return None
        return "--force" if self.force else f"--from {self.start}"

    @property
    def again(self) -> frozenset[str]:
        """The stages to run although their results are cached."""
        if self.force:
            return frozenset(STAGES)
        return frozenset(STAGES[STAGES.index(self.start) :]) if self.start else frozenset()
