"""The report of a build: every decision and measurement, the source of the page and the other reports.

`report.json` is this model. Units are in the names (`*_bytes`, `*_mib`, `*_ms`). It names no path of the machine that
built it, so that it can be shared. `python -m edgepack.report.model FILE` writes its JSON Schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from edgepack.artifacts import (
    Checks,
    CombineFit,
    Examples,
    Gain,
    Int8Choice,
    Judged,
    LedgerRow,
    Score,
    Selection,
    Usage,
    mebibytes,
)
from edgepack.calibration import Reliability
from edgepack.results import NotRunHere, Verdict
from edgepack_runtime import messages
from edgepack_runtime.schema import fields
from edgepack_runtime.schema.receipt import GateReceipt

FORMAT: Final = 1


@dataclass(frozen=True)
class Characters:
    """Length of texts in characters."""

    p50: int
    p95: int
    max: int


@dataclass(frozen=True)
class Rows:
    """The rows of a split, by label."""

    rows: int
    sha256: str
    labels: Mapping[str, int]
    characters: Characters | None


@dataclass(frozen=True)
class Data:
    """The rows of a build; of a model with a handler its examples."""

    source: str
    labels: tuple[str, ...]
    splits: Mapping[str, Rows]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """A trained model: its size, training, and scores."""

    role: str
    parameters: int
    max_length: int
    steps: int
    train_seconds: float
    epochs: int
    best_epoch: int
    dev_score: Score
    test_score: Score
    test_metrics: Mapping[str, float]
    usage: Usage


@dataclass(frozen=True)
class Width:
    """Heads and neurons that stayed in each layer, and their cost."""

    heads_before: int
    heads: int
    neurons_before: int
    neurons: int
    parameters: int
    dev_score_before: Score
    dev_score: Score
    test_score: Score


@dataclass(frozen=True)
class Vocabulary:
    """Size of the vocabulary before and after, and the cost. `unknown` are shares (0 to 1) of dev tokens."""

    tokens_before: int
    tokens: int
    parameters: int
    unknown_before: float
    unknown: float
    test_metrics: Mapping[str, float]
    dev_score_before: Score
    dev_score: Score
    test_score: Score


@dataclass(frozen=True)
class Range:
    """The values that a part of a model reads."""

    low: float
    high: float


@dataclass(frozen=True)
class Columns:
    """Magnitudes of the columns of weights, the smallest and the largest."""

    columns: int
    least: float
    most: float


@dataclass(frozen=True)
class CalibratedPart:
    """What calibration decided about a part of a model.

    `activation` maps each method to its static range: the union over the inputs of the part, with zero. `step` is the
    uint8 step of the range of the method that was taken, or None.
    """

    part: str
    layers: tuple[str, ...]
    activation: Mapping[str, Range]
    step: float | None
    weight: Columns


@dataclass(frozen=True)
class QuantizationFigures:
    """The INT8 search and the quantization ranges, even if no INT8 model ships."""

    calibration_rows: int
    int8: Int8Choice | None
    parts: tuple[CalibratedPart, ...]


@dataclass(frozen=True)
class Parity:
    """Largest absolute difference of an output of `stage` to the row `parity_with`."""

    stage: str
    parity: float
    parity_with: str | None


@dataclass(frozen=True)
class Variation:
    """Another file that ships to some targets."""

    targets: tuple[str, ...]
    precision: str
    reason: str


@dataclass(frozen=True)
class Export:
    """The exported files, and which of them ships."""

    shipped: str
    reason: str
    onnx_bytes: Mapping[str, int]
    parity: tuple[Parity, ...]
    variations: tuple[Variation, ...]


@dataclass(frozen=True)
class MethodFigures:
    """A method to answer: encoder, linear model, or both. `share`: rows that the linear model answers alone."""

    name: str
    score: Score
    gain: Gain
    gain_over_encoder: Gain
    dev_value: float
    on_dev: Judged
    share: float
    weight_mib: float
    mean_ms: float
    p50_ms: float
    p95_ms: float | None
    reliability: Reliability | None


@dataclass(frozen=True)
class Combined:
    """The comparison of the encoder with a linear model."""

    chosen: str
    why: str
    gain: str
    fit: CombineFit
    methods: tuple[MethodFigures, ...]


@dataclass(frozen=True)
class Distance:
    """The distance of a value from its limit, in `unit`."""

    value: float
    unit: str


@dataclass(frozen=True)
class Loss:
    """A failed check with its distance from the limit, and in words that and the stage that lost it."""

    gate: str
    missed_by: Distance
    why: str


@dataclass(frozen=True)
class BundleFigures:
    """A bundle: its size, and the content checks that it passed."""

    file_name: str
    bundle_bytes: int
    unpacked_bytes: int
    manifest_sha256: str
    bytes_by_part: Mapping[str, int]
    checks: Checks
    rows_name: str | None


@dataclass(frozen=True)
class Target:
    """A bundle and its gate on one target. Without a receipt, `not_run_here` says why."""

    target: str
    verdict: Verdict
    delivered: bool
    exit_code: int | None
    not_run_here: NotRunHere | None
    bundle: BundleFigures
    examples: Examples | None
    receipt: GateReceipt | None
    explained: tuple[Loss, ...]


@dataclass(frozen=True)
class Report:
    """The report of a build. `recipe` is resolved, with names of files and folders instead of paths."""

    report: int
    name: str
    version: str
    task: str
    verdict: Verdict
    warnings: tuple[str, ...]
    recipe: Mapping[str, Any]
    data: Data
    models: tuple[Model, ...]
    selection: Selection | None
    width: Width | None
    vocabulary: Vocabulary | None
    quantization: QuantizationFigures
    export: Export | None
    combined: Combined | None
    ledger: tuple[LedgerRow, ...]
    targets: tuple[Target, ...]
    tools: Mapping[str, str]

    @property
    def ships(self) -> str:
        """The precision of the encoder that ships; `linear` without one."""
        return "linear" if self.export is None else self.export.shipped

    def model_mib(self, target: str) -> float | None:
        """Weights of what ships to `target`; None if another file ships there."""
        if self.export is not None and any(target in one.targets for one in self.export.variations):
            return None
        if self.combined is not None:
            return next(
                (method.weight_mib for method in self.combined.methods if method.name == self.combined.chosen), None
            )
        if self.export is None:  # the linear model, which has the first row of the ledger, ships alone
            return next((row.model_mib for row in self.ledger), None)
        shipped = self.export.onnx_bytes.get(self.export.shipped)
        return None if shipped is None else mebibytes(shipped)


def to_json(report: Report) -> dict[str, Any]:
    """The document `report.json` of a report."""
    return fields.document(report)


def parse(document: Any) -> Report:
    """Read `report.json`.

    Raises:
        ValueError: a part is missing or invalid.
    """
    return fields.parse(Report, document)


def dumps(report: Report) -> str:
    """Canonical text of a report: sorted keys, Chinese unescaped, one final newline.

    Raises:
        ValueError: a figure is not finite.
    """
    return json.dumps(to_json(report), ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of `report.json`, in draft 2020-12."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    listed = {"description": "Id and fields of each text that is a message.", "type": "object"}
    made["properties"][messages.KEY] = listed
    return {"$schema": GenerateJsonSchema.schema_dialect, **made}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(json.dumps(schema(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
