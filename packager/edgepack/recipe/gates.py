"""Recipe section `gates`: limits on accuracy, latency, memory, size and cold start, and the golden rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgepack.recipe.section import FilePath, Section
from edgepack_runtime.gate.limits import (
    ABOVE_CONFIDENCE,
    LEAST_SUSTAINED_S,
    MOST_CONFIDENCE,
    MOST_SUSTAINED_S,
)

MOST_GOLDEN_ROWS = 100_000
NOT_LIMITS = ("golden", "inconclusive")  # keys of `gates` that limit nothing
Threads = Annotated[int, Field(ge=1, le=256)]
_Share = Annotated[float, Field(gt=0, lt=1)]


class ClassGate(Section):
    """Least recall, precision or F1 (0 to 1) of single classes."""

    recall: float | None = Field(None, gt=0, lt=1, description="Least recall of any class.")
    precision: float | None = Field(None, gt=0, lt=1, description="Least precision of any class.")
    f1: float | None = Field(None, gt=0, lt=1, description="Least F1 of any class.")
    recall_of: dict[str, _Share] = Field({}, description="Least recall of classes by name, instead of `recall`.")
    precision_of: dict[str, _Share] = Field({}, description="Least precision by name, instead of `precision`.")
    f1_of: dict[str, _Share] = Field({}, description="Least F1 by name, instead of `f1`.")


class GoldenRows(Section):
    """The golden rows, on which gates are measured: a stratified sample of the test rows."""

    rows: int = Field(
        2000,
        ge=1,
        le=MOST_GOLDEN_ROWS,
        description="Maximum number of golden rows. 2000 rows take 10 s at 5 ms per text; "
        "accuracy has +-1.4 points around 88 %.",
    )
    carry: bool = Field(
        True,
        description="Whether the bundle carries them. If not, it holds no text of the data, and devices cannot gate "
        "accuracy alone: `gate --rows FILE` can, with the file that the build writes beside the bundle.",
    )


class AccuracyGate(Section):
    """Accuracy on the golden rows, on the target."""

    metric: Literal["accuracy", "macro_f1", "micro_f1", "f1", "entity_f1"] | None = Field(
        None,
        description="`accuracy`: share of rows with the right answer; F1 over all labels (micro) or their mean "
        "(macro); `f1`: of the rarer of two labels (of `1`, if there is one); `entity_f1`: of exact spans. Default: "
        "`accuracy`; `micro_f1` for several labels; `entity_f1` for tokens.",
    )
    min: float | None = Field(None, gt=0, lt=1, description="Least value of the metric that passes, from 0 to 1.")
    max_drop_points: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Maximum loss of what ships (with the linear model, if that ships) against float ONNX on the same "
        "rows, in percentage points.",
    )
    per_class: ClassGate | None = Field(None, description="Limits for single classes.")
    baseline: FilePath | None = Field(
        None, min_length=1, description="Bundle of the deployed release, for any target, with the same task and labels."
    )
    max_regression_points: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Maximum loss of the shipped model against `baseline` on the same rows, in percentage points.",
    )
    confidence: float = Field(
        0.95,
        gt=ABOVE_CONFIDENCE,
        le=MOST_CONFIDENCE,
        description="Confidence of the intervals of these gates. Above 0.99, F1 takes up to ten times as long.",
    )


class LengthBudget(Section):
    """Limits for texts of some lengths: at most `max_tokens`, and more than in the budget before."""

    max_tokens: int = Field(ge=3, le=2048, description="Maximum number of tokens of a text, with `[CLS]` and `[SEP]`.")
    p50_ms: float | None = Field(None, gt=0, description="Maximum median.")
    p95_ms: float | None = Field(None, gt=0, description="Maximum 95th percentile.")
    p99_ms: float | None = Field(None, gt=0, description="Maximum 99th percentile; needs 662 texts.")


class Sustained(Section):
    """Sustained load: one text after the other for a long time, in which a device may become hot."""

    seconds: float = Field(ge=LEAST_SUSTAINED_S, le=MOST_SUSTAINED_S, description="How long.")
    max_slowdown_percent: float = Field(
        gt=0,
        description="Maximum increase of the median latency from the first to the last third of the run, in percent.",
    )


class LatencyGate(Section):
    """Latency from text to label, batch 1."""

    p50_ms: float | None = Field(None, gt=0, description="Maximum median.")
    p95_ms: float | None = Field(None, gt=0, description="Maximum 95th percentile.")
    p99_ms: float | None = Field(None, gt=0, description="Maximum 99th percentile; needs 662 texts.")
    threads: Threads = Field(
        1, description="Maximum number of threads of one prediction. `tune` on the device finds the best number."
    )
    by_length: tuple[LengthBudget, ...] = Field(
        (), description="Limits by number of tokens, each for longer texts than the one before."
    )
    sustained: Sustained | None = Field(None, description="Limit of the slowdown under sustained load; null for none.")


class MemoryGate(Section):
    """Memory of a device."""

    peak_rss_mib: float = Field(gt=0, description="Peak resident set of a process that loads the model and predicts.")


class SizeGate(Section):
    """Sizes of the files for a device."""

    model_mib: float | None = Field(None, gt=0, description="Largest ONNX file.")
    bundle_mib: float | None = Field(None, gt=0, description="Maximum size of the bundle.")


class ColdStartGate(Section):
    """Time until the first answer."""

    ms: float = Field(gt=0, description="Process start to first answer, in a fresh process.")


class Gates(Section):
    """Limits on the target that must hold before a bundle ships and before an install becomes active."""

    accuracy: AccuracyGate | None = Field(None, description="Limits on accuracy.")
    latency: LatencyGate | None = Field(None, description="Limits on latency.")
    memory: MemoryGate | None = Field(None, description="Limit on memory.")
    size: SizeGate | None = Field(None, description="Limits on sizes.")
    cold_start: ColdStartGate | None = Field(None, description="Limit on the time to the first answer.")
    golden: GoldenRows = Field(GoldenRows(), description="Golden rows, on which the gates are measured.")
    inconclusive: Literal["deliver", "refuse"] = Field(
        "deliver",
        description="What build and install do with a bundle whose gates are inconclusive: `deliver` goes on and "
        "writes down what was not shown; `refuse` does not go on. A bundle that fails is always refused, and so is one "
        "that is not shown to be better than the most frequent answer.",
    )

    @property
    def asks_nothing(self) -> bool:
        """Whether no limit is set."""
        return all(getattr(self, name) is None for name in Gates.model_fields if name not in NOT_LIMITS)

    @property
    def metric(self) -> str | None:
        """The metric of the accuracy gate; None for the metric of the task."""
        return self.accuracy.metric if self.accuracy else None

    @property
    def baseline(self) -> Path | None:
        """The bundle with which accuracy is compared."""
        return Path(self.accuracy.baseline) if self.accuracy and self.accuracy.baseline else None
