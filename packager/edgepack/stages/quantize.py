"""Let PaddleSlim's observers decide the quantization ranges of the student."""

from __future__ import annotations

from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, ScalesArtifact
from edgepack.datasets.draw import Draw
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.recipe.model import Calibration, Quantize

VERSION = 5


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
        return ScalesArtifact(out, observer="none", calibration_rows=0, linears=())
    environment.start(progress)
    from edgepack.paddle_ml.fit import reopen
    from edgepack.paddle_ml.observe import observe, weights_alone

    classifier = reopen(student, data)
    if section.method == "dynamic":
        return ScalesArtifact(out, observer="none", calibration_rows=0, linears=weights_alone(classifier))
    rows = classifier.encode(calibration_rows(data, sample, seed))
    linears = observe(classifier, rows, section.observer, progress)
    return ScalesArtifact(out, observer=section.observer, calibration_rows=len(rows), linears=linears)


def calibration_rows(data: DataArtifact, sample: Calibration, seed: int) -> list[Row]:
    """A seeded sample of the rows that were trained on, in their order."""
    draw = Draw(sample.rows, data.rows["train"], f"calibration/{seed}")
    return [row for row in data.read("train") if draw()]
