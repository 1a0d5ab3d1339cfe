"""Stage `quantize`: find the quantization ranges of the student with PaddleSlim."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from edgepack.artifacts import DataArtifact, ModelArtifact, Quantization, Row, ScalesArtifact
from edgepack.data.sampling import Sampler
from edgepack.progress import Progress
from edgepack.recipe.model import Calibration, Observer, Quantize
from edgepack.recipe.training import Student
from edgepack.training import environment

VERSION = 8
_WEIGHTS_FOLDER = "weights"  # of the model that `qat` trained


def run(
    section: Quantize,
    sample: Calibration,
    seed: int,
    training: Student,
    data: DataArtifact,
    student: ModelArtifact,
    out: Path,
    progress: Progress,
    checkpoint: Path,
) -> ScalesArtifact:
    """Find ranges on the calibration rows, a sample of the training rows. `dynamic` needs the weights only.

    `qat` starts from observed ranges and trains; settings that `section` lacks come from `training`. It continues from
    `checkpoint` and writes its weights into `out`. `fp16` and `none` need no ranges.
    """
    if section.method in ("fp16", "none"):
        return ScalesArtifact(out, ways=(), calibration_rows=0)
    environment.start(progress)
    from edgepack.training.finetune import reopen
    from edgepack.training.quantization.observers import observe, weights_alone

    if section.qat is not None:
        from edgepack.training.quantization.qat import relearn

        sampled = calibration_rows(data, sample, seed)
        linears = relearn(section, training, data, student, sampled, out / _WEIGHTS_FOLDER, progress, checkpoint)
        way = Quantization("qat", section.qat.quanter, linears, _WEIGHTS_FOLDER)
        return ScalesArtifact(out, ways=(way,), calibration_rows=len(sampled))
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
    """A seeded sample of the training rows, in their order."""
    draw = Sampler(sample.rows, data.rows["train"], f"calibration/{seed}")
    return [row for row in data.read("train") if draw()]
