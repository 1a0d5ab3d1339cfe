"""Let PaddleSlim's observers decide the quantization ranges of the student."""

from __future__ import annotations

from pathlib import Path

from edgepack.artifacts import DataArtifact, ModelArtifact, ScalesArtifact
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize

VERSION = 1


def run(section: Quantize, data: DataArtifact, student: ModelArtifact, out: Path, progress: Progress) -> ScalesArtifact:
    """Observe the calibration rows, which are training rows; `method: none` gives no ranges."""
    if section.method == "none":
        return ScalesArtifact(out, observer="none", calibration_rows=0, linears=())
    environment.start()
    from edgepack.paddle_ml.fit import reopen
    from edgepack.paddle_ml.observe import observe

    classifier = reopen(student)
    ids = classifier.encode([row.text for row in data.read("calibration")])
    linears = observe(classifier, ids, section.observer, progress)
    return ScalesArtifact(out, observer=section.observer, calibration_rows=len(ids), linears=linears)
