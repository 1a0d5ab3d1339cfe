"""Let PaddleSlim decide the quantization ranges of the student, in one way or in several to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, ScalesArtifact
from edgepack.datasets.draw import Draw
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.quantization import Quantization
from edgepack.recipe.model import Calibration, Observer, Quantize

VERSION = 6


def run(
    section: Quantize,
    sample: Calibration,
    seed: int,
    data: DataArtifact,
    student: ModelArtifact,
    out: Path,
    progress: Progress,
) -> ScalesArtifact:
    """Observe the calibration rows, which are training rows; `dynamic` needs the weights alone, and `none` nothing."""
    if section.method == "none":
        return ScalesArtifact(out, ways=(), calibration_rows=0)
    environment.start(progress)
    from edgepack.paddle_ml.fit import reopen
    from edgepack.paddle_ml.observe import observe, weights_alone

    classifier = reopen(student, data)
    dynamic = Quantization("dynamic", None, weights_alone(classifier))
    if section.method == "dynamic":
        return ScalesArtifact(out, ways=(dynamic,), calibration_rows=0)
    observers = get_args(Observer) if section.method == "auto" else (section.observer,)
    rows = classifier.encode(calibration_rows(data, sample, seed))
    observed = [Quantization("ptq", name, observe(classifier, rows, name, progress)) for name in observers]
    ways = (*observed, dynamic) if section.method == "auto" else tuple(observed)
    return ScalesArtifact(out, ways, calibration_rows=len(rows))


def calibration_rows(data: DataArtifact, sample: Calibration, seed: int) -> list[Row]:
    """A seeded sample of the rows that were trained on, in their order."""
    draw = Draw(sample.rows, data.rows["train"], f"calibration/{seed}")
    return [row for row in data.read("train") if draw()]
