"""Recipe section `gates`: limits on accuracy, latency, memory, size and cold start, and the golden rows.

`edgepack_runtime.schema.gates` declares the keys. Here they become sections of a recipe.
"""

from __future__ import annotations

from pathlib import Path

from edgepack.recipe.section import DeclaredSection, FilePath
from edgepack_runtime.schema import gates as declared


class ClassGate(DeclaredSection, declared.ClassLimits):
    pass


class GoldenRows(DeclaredSection, declared.GoldenRows):
    pass


class AccuracyGate(DeclaredSection, declared.AccuracyLimits):
    per_class: ClassGate | None = None
    baseline: FilePath | None = None


class LengthBudget(DeclaredSection, declared.LengthLimits):
    pass


class Sustained(DeclaredSection, declared.SustainedLimits):
    pass


class LatencyGate(DeclaredSection, declared.LatencyLimits):
    by_length: tuple[LengthBudget, ...] = ()
    sustained: Sustained | None = None


class MemoryGate(DeclaredSection, declared.MemoryLimits):
    pass


class SizeGate(DeclaredSection, declared.SizeLimits):
    pass


class ColdStartGate(DeclaredSection, declared.ColdStartLimits):
    pass


class Gates(DeclaredSection, declared.Gates):
    accuracy: AccuracyGate | None = None
    latency: LatencyGate | None = None
    memory: MemoryGate | None = None
    size: SizeGate | None = None
    cold_start: ColdStartGate | None = None
    golden: GoldenRows = GoldenRows()

    @property
    def metric(self) -> str | None:
        """The metric of the accuracy gate; None for the metric of the task."""
        return self.accuracy.metric if self.accuracy else None

    @property
    def baseline(self) -> Path | None:
        """The bundle with which accuracy is compared."""
        return Path(self.accuracy.baseline) if self.accuracy and self.accuracy.baseline else None
