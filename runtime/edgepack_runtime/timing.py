"""What was timed for the latency gates, and what one of them asks."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from edgepack_runtime import closed_loop, contention, noise, phases
from edgepack_runtime.closed_loop import Window
from edgepack_runtime.contention import Contention
from edgepack_runtime.latency_limits import LengthBudget
from edgepack_runtime.phases import Course
from edgepack_runtime.predictor import Split
from edgepack_runtime.timed_texts import Kind

MAX_DRIFT = 0.10


class Timing(NamedTuple):
    """Two windows over the same texts, each in an order of its own, and in how many processes it was tried.

    `kinds` tells, for each window, of what kind each of its texts is, and `golden` of the texts that these were chosen
    from: how many have how many tokens.
    """

    windows: List[Window]
    kinds: List[List[Kind]]
    golden: List[Tuple[int, int]]
    processes: int = 1

    @property
    def samples(self) -> List[Split]:
        """Those of the usual texts."""
        return [sample for pair in zip(self.windows, self.kinds) for sample in _usual(*pair)]

    @property
    def medians_ms(self) -> List[float]:
        """Of the usual texts, for each window."""
        return [statistics.median(s.total_ms for s in _usual(*pair)) for pair in zip(self.windows, self.kinds)]

    @property
    def contention(self) -> Contention:
        """Of both windows."""
        return contention.together([window.contention for window in self.windows])

    @property
    def drift(self) -> float:
        """How much larger the larger median is, as a fraction."""
        return max(self.medians_ms) / min(self.medians_ms) - 1

    @property
    def stable(self) -> bool:
        return self.drift <= MAX_DRIFT

    def course(self) -> Optional[Course]:
        """What the machine went through meanwhile; None where it was no faster or slower for a while than by chance.

        Texts differ in length. Only the machine is left in how much longer each took than it did in the other window.
        """
        pairs = zip(self.windows, self.kinds)
        timed = [(one.total_ms, kind.row) for window, kinds in pairs for one, kind in zip(window.samples, kinds)]
        times_ms, rows = zip(*timed)
        found = phases.find(phases.against_others(times_ms, rows))
        return phases.told_apart(times_ms, rows, found) if found else None

    def stretches(self, asked: Asked) -> List[noise.Stretch]:
        """The timings of each window that a limit is about, with what others can have taken of them."""
        pairs = zip(self.windows, self.kinds)
        return [closed_loop.stretch(window, [asked.concerns(kind) for kind in kinds]) for window, kinds in pairs]

    def totals_ms(self, asked: Asked) -> List[float]:
        """Those timings, in their order."""
        return [ms for stretch in self.stretches(asked) for ms in stretch.times_ms]

    def throughout_ms(self, asked: Asked, course: Course, level: float) -> List[float]:
        """What they would be, had the machine been in one phase of `course` all the time; `level` as
        `phases.throughout`.
        """
        kinds = [kind for window in self.kinds for kind in window]
        samples = [sample for window in self.windows for sample in window.samples]
        steady = phases.throughout(course.slowness, course.phases, level)
        told = zip(kinds, samples, steady, course.slowness)
        return [sample.total_ms * then / was for kind, sample, then, was in told if asked.concerns(kind)]

    def rows(self, asked: Asked) -> Set[int]:
        """Which texts were timed for a limit."""
        return {kind.row for kind in self.kinds[0] if asked.concerns(kind)}

    def design_effect(self, asked: Asked) -> float:
        """How many samples are worth one that is independent of the others.

        The limit is about texts as long as the golden rows. Where all of those were timed, only the machine's noise is
        left to chance, and each timing is a sample of it; else each text is one, however often it was timed. Texts that
        were timed more often than others count for more than they should, and all together for less (Kish's weighting
        effect: L. Kish, Survey Sampling (1965), 11.7).
        """
        times = Counter(kind.row for kind in self.kinds[0] if asked.concerns(kind))
        timed, squares = sum(times.values()), sum(count * count for count in times.values())
        there_are = sum(count for tokens, count in self.golden if asked.budget is None or asked.budget.holds(tokens))
        if len(times) >= there_are:
            return len(times) * squares / timed**2
        return len(self.windows) * squares / timed


class Asked(NamedTuple):
    """One limit: the name of its gate, the percentile (0 to 1), the most it may be, and of texts of which length."""

    gate: str
    fraction: float
    limit_ms: float
    budget: Optional[LengthBudget] = None

    def concerns(self, kind: Kind) -> bool:
        """Whether a text of this kind counts."""
        return kind.usual if self.budget is None else self.budget.holds(kind.tokens)


def _usual(window: Window, kinds: Sequence[Kind]) -> List[Split]:
    return [sample for sample, kind in zip(window.samples, kinds) if kind.usual]
