"""The accuracy gates of a recipe on rows of the build, judged by the code that gates a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Judged, Row
from edgepack.bundle import baseline
from edgepack.progress import Progress
from edgepack.recipe.gates import Gates
from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.gate import accuracy
from edgepack_runtime.schema.figures import shown
from edgepack_runtime.schema.gates import Limits, ManifestAccuracy, limit_named
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import Answer

_ROUNDING = 1e-6  # checks are rounded to six digits


def manifest_accuracy(gates: Gates) -> dict[str, Any]:
    """`gates.accuracy` of the manifest, with the entry of the baseline.

    A useless model passes no gate, whatever the recipe: each bundle is compared with the most frequent answer.
    """
    asked = {} if gates.accuracy is None else gates.accuracy.model_dump(mode="json")
    if gates.baseline is not None:
        asked["baseline"] = baseline.manifest_entry(gates.baseline)
    return {**asked, "above_majority": True}


@dataclass(frozen=True)
class Judge:
    """Judges answers to rows by the accuracy gates of a recipe.

    Attributes:
        metric: that of the gates, or of the task.
        float_answers: of the float model; None if no gate compares with it.
        baseline_answers: of the earlier release; None without one.
    """

    data: DataArtifact
    rows: Sequence[Row]
    limits: ManifestAccuracy
    metric: str
    float_answers: Sequence[Answer] | None
    baseline_answers: Sequence[Answer] | None

    @classmethod
    def of(
        cls,
        gates: Gates,
        data: DataArtifact,
        rows: Sequence[Row],
        float_answers: Sequence[Answer] | None,
        progress: Progress,
    ) -> Judge:
        """The judge of a recipe's gates. The answers of an earlier release are made here.

        Raises:
            StageFailedError: the earlier release cannot be run.
        """
        limits = Limits.parse({"accuracy": manifest_accuracy(gates)}).accuracy
        earlier = None if gates.baseline is None else baseline.answers(gates.baseline, rows, progress)
        return cls(data, rows, limits, gates.metric or evaluation.metric_of(data), float_answers, earlier)

    def __call__(self, answers: Sequence[Answer], *, against_float: bool = True) -> Judged:
        """The verdict on `answers`, one for each row.

        Args:
            against_float: whether `max_drop_points` counts; a linear model alone has no float model beside it.
        """
        limits = self.limits if against_float else replace(self.limits, max_drop_points=None)
        nothing: Sequence[Answer | None] = [None] * len(self.rows)
        rows = [
            GoldenRow(row.text, row.label, in_float, row.text_pair, earlier)
            for row, in_float, earlier in zip(
                self.rows, self.float_answers or nothing, self.baseline_answers or nothing, strict=True
            )
        ]
        measured = accuracy.measure(
            self.data.text_task, rows, answers, self.metric, limits.confidence, self.data.labels
        )
        checks = accuracy.checks(measured, limits)
        missed = tuple(
            f"{check.gate} {shown(check.value, check.unit)}, limit {shown(check.limit, check.unit)}"
            for check in checks
            if _misses(check)
        )
        return Judged(intervals.overall([check.verdict for check in checks]), missed)


def _misses(check: GateCheck) -> bool:
    """Whether the value itself is on the wrong side of the limit, shown or not."""
    if check.value is None:
        return False
    below = check.limit - check.value
    return (below if limit_named(check.gate).minimum else -below) > _ROUNDING
