"""Accuracy and latency of model folders on this machine, by the runtime package on the files that ship."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.artifacts import Interval, Row, proportion
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack_runtime.predictor import Predictor

_BATCH = 32
_ROUNDS = 10  # each of all texts


@dataclass(frozen=True)
class Latency:
    """Text in to label out, batch 1, one thread, of one model; all models of a call were timed interleaved."""

    p50_ms: float
    p95_ms: float


def accuracy(folder: Path, rows: Sequence[Row], progress: Progress) -> Interval:
    """Fraction of `rows` that the model folder labels right, text in, label out."""
    predictor = Predictor(folder)
    right = 0
    with progress.task(f"accuracy of {folder.name}", len(rows)) as task:
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            found = predictor.predict_batch([row.text for row in part])
            right += sum(prediction.label == row.label for prediction, row in zip(found, part, strict=True))
            task.advance(len(part))
    return proportion(right, len(rows))


def latency(folders: Sequence[Path], texts: Path, progress: Progress) -> list[Latency]:
    """Time all folders side by side on the lines of `texts`, in one fresh process: no trainer's threads share it.

    Raises:
        StageFailedError: when the process fails.
    """
    progress.line(f"timing {', '.join(folder.name for folder in folders)}, interleaved, one thread")
    command = [sys.executable, "-m", "edgepack_runtime", "bench", *map(str, folders)]
    done = subprocess.run(
        [*command, "--texts", str(texts), "--threads", "1", "--runs", str(_ROUNDS), "--json"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise StageFailedError("export: the runtime could not time the exported files", why=done.stderr.strip())
    result = json.loads(done.stdout)
    return [Latency(model["p50_ms"], model["p95_ms"]) for model in result["models"]]
