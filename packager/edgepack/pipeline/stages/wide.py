"""Stage `wide`: compare the shipped encoder with the linear model, row by row."""

from __future__ import annotations

from pathlib import Path

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, ExportArtifact, LinearArtifact, WideArtifact
from edgepack.progress import Progress
from edgepack_runtime.inference.linear import FILE_NAME, LinearModel

VERSION = 1


def run(
    data: DataArtifact, linear: LinearArtifact, exported: ExportArtifact, out: Path, progress: Progress
) -> WideArtifact:
    """Both answer the test rows; the difference is paired."""
    rows, folder = data.read("test"), exported.folder / exported.shipped_model.folder
    encoder = evaluation.answers(evaluation.opened(folder), rows, "encoder and linear model", progress)
    model = LinearModel.load(linear.folder / FILE_NAME)
    plain = evaluation.linear_answers(model, rows, data.labels, multi_label=data.multi_label)
    found = WideArtifact(out, gains=evaluation.gains(data, rows, plain, encoder))
    progress.line(f"the encoder {found.verdict(evaluation.metric_of(data))}")
    return found
