"""The section `gates` of a recipe: what must hold, and which rows it is measured on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgepack.recipe.section import Section
from edgepack_runtime.gate.limits import (
    ABOVE_CONFIDENCE,
    LEAST_OPEN_LOOP_S,
    LEAST_SUSTAINED_S,
    MOST_CONFIDENCE,
    MOST_OPEN_LOOP_S,
    MOST_SUSTAINED_S,
    OPEN_LOOP_S,
)

MOST_GOLDEN_ROWS = 100_000
Threads = Annotated[int, Field(ge=1, le=256)]
_Share = Annotated[float, Field(gt=0, lt=1)]


class ClassGate(Section):
    """What no class may be worse than, whatever the mean is: recall, precision or F1, from 0 to 1."""

    recall: float | None = Field(None, gt=0, lt=1, description="Least recall of any class.")
    precision: float | None = Field(None, gt=0, lt=1, description="Least precision of any class.")
    f1: float | None = Field(None, gt=0, lt=1, description="Least F1 of any class.")
    recall_of: dict[str, _Share] = Field({}, description="Least recall of classes by name, instead of `recall`.")
    precision_of: dict[str, _Share] = Field({}, description="Least precision by name, instead of `precision`.")
    f1_of: dict[str, _Share] = Field({}, description="Least F1 by name, instead of `f1`.")


class GoldenRows(Section):
    """The test rows that gates are measured on: a sample of them, as likely of every kind as there are of it."""

    rows: int = Field(
        2000,
        ge=1,
        le=MOST_GOLDEN_ROWS,
        description="Most of them. 2000 take 10 s on a device of 5 ms a text, and tell +-1.4 points around 88 %.",
    )
    carry: bool = Field(
        True,
        description="Whether they travel in the bundle. If not, no text of the data does, and devices cannot gate "
        "accuracy by themselves: `gate --rows FILE` can, with the file that a build leaves beside the bundle.",
    )


class AccuracyGate(Section):
    """How right the answers are, on the golden rows, on the target."""

    metric: Literal["accuracy", "macro_f1", "micro_f1", "f1", "entity_f1"] | None = Field(
        None,
        description="Share of rows answered right as a whole; F1 over all labels or their mean; `f1` of the rarer of "
        "two labels (of `1`, if there is one); `entity_f1` of exact spans. Without it what models of the task are "
        "compared by: `accuracy`; `micro_f1` for several labels; `entity_f1` for tokens.",
    )
    min: float | None = Field(None, gt=0, lt=1, description="Lowest value of the metric that passes, from 0 to 1.")
    max_drop_points: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Most percentage points the shipped file may lose against the float ONNX, on the same rows.",
    )
    per_class: ClassGate | None = Field(None, description="What no single class may be worse than.")
    baseline: str | None = Field(
        None, min_length=1, description="Bundle of the release that is out there, of any target; same task and labels."
    )
    max_regression_points: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Most percentage points the shipped file may lose against `baseline`, on the same rows.",
    )
    confidence: float = Field(
        0.95,
        gt=ABOVE_CONFIDENCE,
        le=MOST_CONFIDENCE,
        description="Of every interval that these gates compare; beyond 0.99 F1 takes up to ten times as long.",
    )


class LengthBudget(Section):
    """Limits for texts of some lengths: of at most `max_tokens`, and more than those of the budget before."""

    max_tokens: int = Field(ge=3, le=2048, description="Most tokens of a text, `[CLS]` and `[SEP]` among them.")
    p50_ms: float | None = Field(None, gt=0, description="Longest median.")
    p95_ms: float | None = Field(None, gt=0, description="Longest 95th percentile.")
    p99_ms: float | None = Field(None, gt=0, description="Longest 99th percentile; it takes 662 texts.")


class OpenLoop(Section):
    """Texts that arrive at random, whether the one before is answered or not: arrival to answer, one predictor."""

    rate_per_s: float = Field(gt=0, le=100_000, description="Texts a second that arrive on average.")
    seconds: float = Field(
        OPEN_LOOP_S,
        ge=LEAST_OPEN_LOOP_S,
        le=MOST_OPEN_LOOP_S,
        description="How long at least. A machine that is slow now and then, but not in that time, may pass.",
    )
    p50_ms: float | None = Field(None, gt=0, description="Longest median.")
    p95_ms: float | None = Field(None, gt=0, description="Longest 95th percentile.")
    p99_ms: float | None = Field(None, gt=0, description="Longest 99th percentile; it takes 662 texts or more.")


class Sustained(Section):
    """One text after the other for a long time, in which a device may become hot."""

    seconds: float = Field(ge=LEAST_SUSTAINED_S, le=MOST_SUSTAINED_S, description="How long.")
    max_slowdown_percent: float = Field(
        gt=0, description="Most percent by which the median of the last third may lie above that of the first."
    )


class LatencyGate(Section):
    """Text in to label out, batch 1."""

    p50_ms: float | None = Field(None, gt=0, description="Longest median.")
    p95_ms: float | None = Field(None, gt=0, description="Longest 95th percentile.")
    p99_ms: float | None = Field(None, gt=0, description="Longest 99th percentile; it takes 662 texts.")
    threads: Threads = Field(1, description="Most threads of one prediction. A device finds out how many pay.")
    by_length: tuple[LengthBudget, ...] = Field(
        (), description="Limits for texts by their tokens, each for longer ones than the one before."
    )
    open_loop: OpenLoop | None = Field(None, description="Limits for texts that arrive at a rate; null for none.")
    sustained: Sustained | None = Field(None, description="Limit of what heat may cost; null for none.")


class MemoryGate(Section):
    """What a device must have free."""

    peak_rss_mib: float = Field(gt=0, description="Peak resident set of a process that loads the model and predicts.")


class SizeGate(Section):
    """What is copied to a device."""

    model_mib: float | None = Field(None, gt=0, description="Largest ONNX file.")
    bundle_mib: float | None = Field(None, gt=0, description="Largest bundle, with everything it carries.")


class ColdStartGate(Section):
    """What the first caller waits for."""

    ms: float = Field(gt=0, description="Process start to first answer, in a fresh process.")


class Gates(Section):
    """What must hold on the target before a bundle ships and before an install goes live."""

    accuracy: AccuracyGate | None = Field(None, description="How often the label must be right.")
    latency: LatencyGate | None = Field(None, description="How soon an answer must come.")
    memory: MemoryGate | None = Field(None, description="How much memory it may take.")
    size: SizeGate | None = Field(None, description="How many MiB may travel.")
    cold_start: ColdStartGate | None = Field(None, description="How soon the first answer must come.")
    golden: GoldenRows = Field(GoldenRows(), description="Which rows all of it is measured on.")

    @property
    def asks_nothing(self) -> bool:
        """Whether there is no limit; a section without one is an error of the recipe."""
        return all(getattr(self, name) is None for name in Gates.model_fields if name != "golden")

    @property
    def metric(self) -> str | None:
        """What they name to judge accuracy by; null is what models of the task are compared by."""
        return self.accuracy.metric if self.accuracy else None

    @property
    def baseline(self) -> Path | None:
        """The bundle that the accuracy is held against."""
        return Path(self.accuracy.baseline) if self.accuracy and self.accuracy.baseline else None
